"""The death of a program of the service does not affect a running job.

Not here: the node's agent (``tests.faults.test_ranks``).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.builders import script, slow
from tests.harness.processes import kill, until
from tests.harness.service import Service

pytestmark = pytest.mark.e2e
STEPS = 200
"""Steps of 80 ms each until the fault, so that a job still runs at that time.

They take a few milliseconds after it, because no test waits for them.
"""


@pytest.mark.parametrize("name", ["api", "scheduler", "broker"])
def test_a_killed_program_restarts_and_the_job_ends_unaffected(
    lockstep: Service, tmp_path: Path, name: str
) -> None:
    enough = tmp_path / "enough"
    args = {"pause": 0.01, "enough": str(enough)}
    job = lockstep.submit(slow(lockstep, tmp_path, f"under-{name}", args=args, steps=STEPS))
    lockstep.at_step(job["id"], 3)
    ranks = lockstep.rank_pids(job["id"])
    before = lockstep.program(name)
    kill(before)
    until(lambda: lockstep.program(name).pid != before.pid, 60, f"{name} back")
    until(lambda: _answers(lockstep), 60, "api back")
    enough.touch()
    ended = lockstep.ended(job["id"])
    assert ended["state"] == "succeeded", ended["outcome"]
    assert ended["attempt"]["number"] == 1
    assert lockstep.rank_pids(job["id"]) == ranks
    assert sorted(lockstep.series(job["id"])["train/loss"]) == list(range(1, STEPS + 1))
    assert (
        lockstep.ended(lockstep.submit(script(f"after-{name}", ["true"]))["id"])["state"]
        == "succeeded"
    )


def test_a_job_submitted_without_a_broker_starts(lockstep: Service) -> None:
    # Stopped, not killed: with a frozen broker, a publish could block a request. The test that none
    # does is in tests/api/test_server.py, with enough submits to show it on a busy machine.
    broker = lockstep.program("broker")
    broker.suspend()
    try:
        job = lockstep.submit(script("no-broker", ["true"]))
    finally:
        broker.resume()
    assert lockstep.ended(job["id"])["state"] == "succeeded"


def test_a_paused_job_continues_where_it_stopped_despite_killed_programs(
    lockstep: Service, tmp_path: Path
) -> None:
    enough = tmp_path / "enough"
    args = {"pause": 0.01, "enough": str(enough)}
    job = lockstep.submit(slow(lockstep, tmp_path, "paused", args=args, steps=STEPS))["id"]
    lockstep.at_step(job, 5)
    assert "running (pausing), at most" in lockstep.run("pause", job).stdout
    for name in ("scheduler", "worker"):
        kill(lockstep.program(name))
    until(lambda: lockstep.job(job)["state"] == "paused", 90, "paused")
    assert lockstep.processes_of(job) == []
    assert lockstep.ended(lockstep.submit(script("beside", ["true"], gpus=4))["id"])["outcome"]
    assert lockstep.job(job)["state"] == "paused"
    kill(lockstep.program("scheduler"))
    enough.touch()
    assert lockstep.run("resume", job).stdout.split() == [job, "paused", "queued"]
    ended = lockstep.ended(job)
    assert (ended["state"], ended["attempt"]["number"]) == ("succeeded", 2), ended["outcome"]
    kinds = [event["kind"] for event in lockstep.events(job)]
    assert {"pause_requested", "paused", "unpaused", "resumed"} <= set(kinds)
    assert sorted(lockstep.series(job)["train/loss"]) == list(range(1, STEPS + 1))


def test_a_script_that_exits_with_75_is_started_again(lockstep: Service, tmp_path: Path) -> None:
    (tmp_path / "count.sh").write_text(
        f"echo >> {tmp_path}/runs\ntest $(wc -l < {tmp_path}/runs) = 3 || exit 75\n"
    )
    spec = script("again", ["bash", "count.sh"], upload=lockstep.upload(tmp_path))
    ended = lockstep.ended(lockstep.submit(spec)["id"])
    assert (ended["state"], ended["attempt"]["number"]) == ("succeeded", 3), ended["outcome"]
    events = [e["message"] for e in lockstep.events(ended["id"]) if e["kind"] == "requeued"]
    assert events == [
        "script exited with code 75 on rank 0; retry 1 of 3",
        "script exited with code 75 on rank 0; retry 2 of 3 without progress",
    ]


def test_down_stops_the_jobs_and_up_resumes_them(lockstep: Service, tmp_path: Path) -> None:
    enough = tmp_path / "enough"
    args = {"pause": 0.01, "enough": str(enough)}
    job = lockstep.submit(
        slow(lockstep, tmp_path, "across", args=args, steps=STEPS, checkpoint={"every_steps": 1000})
    )
    lockstep.at_step(job["id"], 5)
    done = lockstep.down()
    assert done.returncode == 0, done.stderr
    assert lockstep.processes_of(job["id"]) == []
    enough.touch()
    lockstep.up()
    ended = lockstep.ended(job["id"])
    assert ended["state"] == "succeeded", ended["outcome"]
    assert ended["attempt"]["number"] == 2
    assert any(event["kind"] == "resumed" for event in lockstep.events(job["id"]))
    assert sorted(lockstep.series(job["id"])["train/loss"]) == list(range(1, STEPS + 1))


def _answers(service: Service) -> bool:
    import httpx2

    try:
        return service.http.get("/readyz").status_code == 200
    except httpx2.TransportError:
        return False
