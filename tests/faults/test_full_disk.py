"""A disk that is really full for a while, under all files of a service: home, logs, store, ranks.

The home is a tmpfs of its own, so that logs, databases, spools and fences are on the full disk.

Not here: injected errors (``tests.harness.databases``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import disks
from tests.harness.builders import script
from tests.harness.processes import until
from tests.harness.service import Service, service

FULL_SECONDS = 45.0
"""Nearly a fence. Leases of 60 s must be renewed on the full disk."""
READY_SECONDS = 15.0
SIZE = "300m"

LINES = """
import json, os, time
with open(os.environ["LOCKSTEP_METRICS"], "a") as metrics:
    for step in range(100_000):
        print("line", step, flush=True)
        try:
            metrics.write(json.dumps({"step": step, "loss": 1 / (step + 1)}) + "\\n")
            metrics.flush()
        except OSError:
            pass
        time.sleep(0.05)
        if os.path.exists(os.environ["ENOUGH"]):
            break
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disks.small_disk(tmp_path / "disk", f"size={SIZE},mode=0700") as folder:
        yield folder


@pytest.fixture
def full_service(small_disk: Path) -> Iterator[Service]:
    yield from service(small_disk / "home", LOCKSTEP_KEEP_FOLDERS="0")


def train(steps: int = 60_000) -> dict[str, object]:
    return {
        "name": "small-steps",
        "kind": "train",
        "train": {
            "task": "image_classification",
            "task_args": {"width": 8},
            "batch": {"size": 8, "micro_size": 8},
            "steps": steps,
            "optimizer": {"name": "adamw", "lr": 3e-3},
            "checkpoint": {"every_steps": 200, "keep_last": 2},
        },
    }


def test_a_temporarily_full_disk_ends_no_program_and_no_job(
    full_service: Service, small_disk: Path, tmp_path: Path
) -> None:
    running = full_service
    code = tmp_path / "code"
    code.mkdir()
    (code / "lines.py").write_text(LINES)
    enough = tmp_path / "enough"
    lines = running.submit(
        script(
            "lines",
            ["python", "lines.py"],
            upload=running.upload(code),
            env={"ENOUGH": str(enough)},
        )
    )["id"]
    trained = running.submit(train())["id"]
    running.at_step(trained, 300)
    running.at_step(lines, 20)

    disks.fill(small_disk)
    ready = until(
        lambda: (answer := running.http.get("/readyz")).status_code == 503 and answer,
        30,
        "/readyz of a full disk",
    )
    assert ready.json()["checks"]["database"].startswith("full: the disk of the jobs database has")
    refused = running.http.post("/v1/jobs", json=train())
    assert refused.status_code == 507, refused.text
    with disks.kept_full(small_disk):
        time.sleep(FULL_SECONDS)

    freed = time.monotonic()
    until(lambda: running.http.get("/readyz").status_code == 200, 60, "ready again")
    until(
        lambda: (
            [node["state"] for node in running.http.get("/v1/nodes").json()["items"]] == ["ready"]
        ),
        60,
        "the node",
    )
    print(f"ready {time.monotonic() - freed:.1f} s after the disk had space")
    before = {job: running.job(job)["progress"]["step"] for job in (lines, trained)}
    for job, step in before.items():
        running.at_step(job, step + 200 if job == trained else step + 20, 60)
    enough.touch()
    assert running.ended(lines)["state"] == "succeeded"
    assert running.http.post(f"/v1/jobs/{trained}/cancel").status_code in {200, 202}
    running.ended(trained)
    for job in (lines, trained):
        assert running.job(job)["attempt"]["number"] == 1, running.events(job)
    steps = running.series(trained)["train/loss"]
    assert sorted(steps) == list(range(1, max(steps) + 1))
    print((small_disk / "home" / "logs" / "worker.log").read_text()[-6000:])
