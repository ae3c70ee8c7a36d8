"""A stop of a job whose checkpoint takes longer than the minimum grace loses no step."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.harness.processes import until
from tests.harness.service import Service

SAVE_SECONDS = 7.0
"""More than the earlier fixed grace of 5 s, also if no save was measured."""
TASK = Path(__file__).with_name("slow_state.py")


def submitted(lockstep: Service, folder: Path, every_steps: int) -> str:
    shutil.copy(TASK, folder / "task.py")
    train = {
        "task": "task.py:Slow",
        "task_args": {"save_seconds": SAVE_SECONDS},
        "batch": {"size": 16, "micro_size": 4},
        "steps": 5_000,
        "optimizer": {"name": "sgd", "lr": 0.01},
        "checkpoint": {"every_steps": every_steps},
    }
    spec = {"name": "slow-state", "kind": "train", "resources": {"gpus": 2}, "train": train}
    code = {"upload": lockstep.upload(folder)}
    return lockstep.submit({**spec, "code": code})["id"]


def newest(lockstep: Service, job_id: str) -> int:
    listed = lockstep.http.get(f"/v1/jobs/{job_id}/checkpoints").json()["items"]
    return max([one["step"] for one in listed], default=0)


def last_step(lockstep: Service, job_id: str) -> int:
    return max(lockstep.series(job_id, "all")["train/loss"])


def resumed(lockstep: Service, job_id: str, attempt: int) -> dict[str, Any]:
    """Return the event of an attempt that resumes, after a check of the step."""
    found = until(
        lambda: next(
            (
                one
                for one in lockstep.events(job_id)
                if one["kind"] == "resumed" and one["attempt"] == attempt
            ),
            None,
        ),
        180,
        f"attempt {attempt} resumes",
    )
    listed = lockstep.http.get(
        f"/v1/jobs/{job_id}/metrics",
        params={"attempts": "all", "max_points": 10_000, "names": "train/loss"},
    )
    assert listed.status_code == 200, listed.text
    (before,) = (one["step"] for one in listed.json()["series"] if one["attempt"] == attempt - 1)
    assert found["data"]["step"] == max(before), lockstep.events(job_id)
    return found


def test_a_stop_with_a_slow_checkpoint_loses_no_step(lockstep: Service, tmp_path: Path) -> None:
    job_id = submitted(lockstep, tmp_path, 10)
    until(lambda: newest(lockstep, job_id) >= 10, 180, "the first checkpoint")

    (node,) = (one["name"] for one in lockstep.http.get("/v1/nodes").json()["items"])
    assert lockstep.run("nodes", "drain", node).returncode == 0
    lockstep.program("worker").terminate()
    until(lambda: lockstep.job(job_id)["state"] == "queued", 180, "the stop")
    assert lockstep.run("nodes", "resume", node).returncode == 0
    step = resumed(lockstep, job_id, 2)["data"]["step"]

    # Its own attempt has saved nothing yet. The duration is that of the previous attempt.
    lockstep.at_step(job_id, step + 5, 120)
    assert lockstep.down().returncode == 0
    lockstep.up()
    step = resumed(lockstep, job_id, 3)["data"]["step"]

    lockstep.at_step(job_id, step + 5, 120)
    told = lockstep.run("cancel", job_id)
    assert "at most" in told.stdout, told.stdout
    assert "3 × the last checkpoint" in told.stdout, told.stdout
    grace = lockstep.job(job_id)["stop_grace"]
    assert 3 * SAVE_SECONDS <= grace["seconds"] <= 300
    assert lockstep.ended(job_id)["stop_grace"] is None
    assert newest(lockstep, job_id) == last_step(lockstep, job_id)

    # Without a save before the first stop, however late it comes.
    job_id = submitted(lockstep, tmp_path, 5_000)
    lockstep.at_step(job_id, 5, 120)
    # Not by the command: on a busy machine its second start takes longer than this grace.
    cancel = f"/v1/jobs/{job_id}/cancel"
    assert lockstep.http.post(cancel).json()["stop_grace"]["seconds"] == 5
    hurried = lockstep.http.post(cancel, params={"now": True}).json()
    assert hurried["stop_grace"]["seconds"] == 0
    assert lockstep.ended(job_id)["state"] == "cancelled"
    assert lockstep.processes_of(job_id) == []
    assert newest(lockstep, job_id) == 0
    kinds = [one["message"] for one in lockstep.events(job_id) if "requested" in one["kind"]]
    assert len(kinds) == 2
    assert "grace 0 s" in kinds[1]
