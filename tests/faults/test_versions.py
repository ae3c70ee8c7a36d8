"""Programs of two versions on one service: jobs run, or a program refuses to start.

The refusal is one sentence. No job waits without a reason, and none ends as ``bad_spec``. The newer
version is this tree with a migration and a few fields more (``tests.harness.faults.versions``), so this
tree's programs are the older side, and both sides run as processes.

Not here: the whole rolling upgrade from the version in the git history (``test_upgrade``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from lockstep.domain.version import VERSION
from lockstep.storage.db.schema import head
from tests.harness import forks
from tests.harness.databases import Urls
from tests.harness.faults.versions import NEWER, Rolling, Version, migrate, newer_version
from tests.harness.node import NAME
from tests.harness.plane import PATIENCE_SECONDS, script
from tests.harness.processes import ROOT, START_SECONDS, Program, running_broker, until

OLD: Final = Version(ROOT)
WORKS: Final = "ranks(); metric({'step': 1, 'loss': 1.0}); finish()"
AFTER: Final = f"{int(head('jobs')) + 1:04d}"


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Version:
    return newer_version(tmp_path_factory.mktemp("newer") / "tree")


@pytest.fixture
def rolling(tmp_path: Path) -> Iterator[Rolling]:
    urls: Urls = (f"sqlite:///{tmp_path}/jobs.db", f"sqlite:///{tmp_path}/series.db")
    with running_broker() as broker:
        made = Rolling(tmp_path, urls, broker)
        try:
            yield made
        finally:
            made.close()


def submit(api: Program, name: str, **more: Any) -> str:
    with api.client() as http:
        answer = http.post("/v1/jobs", json=script(WORKS, name=name, **more))
        assert answer.status_code == 201, answer.text
        job: str = answer.json()["id"]
        return job


def waits_because(api: Program, job: str) -> str:
    with api.client() as http:
        place = http.get(f"/v1/jobs/{job}").json()["queue"]
    return "" if place is None else str(place["reason"])


def reasons(api: Program, job: str) -> set[str]:
    """Return the reasons of all ends of its attempts."""
    with api.client() as http:
        found = http.get(f"/v1/jobs/{job}/attempts").json()["items"]
    return {attempt["outcome"]["reason"] for attempt in found if attempt["outcome"] is not None}


def succeeds(rolling: Rolling, job: str) -> None:
    row = rolling.node.wait(job, "succeeded", "failed", "cancelled", seconds=PATIENCE_SECONDS)
    assert row.state.value == "succeeded", rolling.node.events(job)


def refusal(rolling: Rolling, version: Version, program: str) -> str:
    """Return the one line with which a program refuses to start."""
    environment = {**rolling.new_api(version).environment, "LOCKSTEP_NODE_NAME": NAME}
    environment["LOCKSTEP_NODE_DIR"] = str(rolling.folder / "refused")
    command = [sys.executable, "-m", f"lockstep.{program}"]
    ended = forks.run(
        command, forks.SERVICE, cwd=rolling.folder, env=environment, timeout=START_SECONDS
    )
    assert ended.returncode == 2, ended.stderr
    (line,) = ended.stderr.splitlines()
    return line


def test_a_new_api_with_the_previous_scheduler_and_agent(
    rolling: Rolling, new: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(rolling.new_api(OLD))
    rolling.start_scheduler(OLD, monkeypatch)
    rolling.start_agent(OLD)
    api = rolling.new_api(new)
    migrate(api)
    api.start()

    succeeds(rolling, submit(api, "as-before"))
    asks = submit(api, "asks-for-what-is-new", retry={"max": 3, "jitter": 3.0})
    why = f"Lockstep {VERSION} cannot read the job's spec: unknown field retry.jitter = 3.0"
    waits = f"upgrade the scheduler: {why}"
    until(
        lambda: waits_because(api, asks) == waits,
        PATIENCE_SECONDS,
        "the old scheduler gives its reason",
    )
    succeeds(rolling, submit(api, "behind-it"))

    rolling.schedulers[0].end()
    rolling.start_scheduler(new, monkeypatch)
    until(lambda: reasons(api, asks), PATIENCE_SECONDS, "the old agent gives it back")
    assert f"node {NAME}: {why}; not counted as a retry" in [
        message for _kind, message in rolling.node.events(asks)
    ]
    succeeds(rolling, submit(api, "placed-by-the-new-scheduler"))

    rolling.node.terminate()
    rolling.start_agent(new)
    succeeds(rolling, asks)
    assert reasons(api, asks) == {"version", "succeeded"}


def test_an_old_api_with_a_new_scheduler_and_agent(
    rolling: Rolling, new: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = rolling.new_api(OLD)
    migrate(api)
    api.start()
    older = (
        f"the jobs database has schema {head('jobs')}, older than {AFTER} of this program "
        f"(Lockstep {NEWER})"
    )
    for program, name in (("api", "api"), ("scheduler", "scheduler"), ("worker", "agent")):
        assert (
            refusal(rolling, new, program)
            == f"{name}: {older}; upgrade the database with: lockstep migrate"
        )

    migrate(rolling.new_api(new))
    rolling.start_scheduler(new, monkeypatch)
    rolling.start_agent(new)
    succeeds(rolling, submit(api, "as-before"))
    newer = (
        f"the jobs database has schema {AFTER}, newer than {head('jobs')} of this program "
        f"(Lockstep {VERSION})"
    )

    def ready() -> dict[str, Any]:
        with api.client() as http:
            found: dict[str, Any] = http.get("/readyz").json()
        return found

    until(
        lambda: ready()["checks"]["database"] != "ok",
        PATIENCE_SECONDS,
        "the old api sees the migration",
    )
    assert ready()["checks"]["database"] == f"{newer}; upgrade Lockstep on this host"
    assert ready()["status"] == "degraded"
    for program, name in (("api", "api"), ("scheduler", "scheduler"), ("worker", "agent")):
        assert refusal(rolling, OLD, program) == f"{name}: {newer}; upgrade Lockstep on this host"
