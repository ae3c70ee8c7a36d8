"""A running job does not notice that a program of the service dies.

Not here: the node's agent (``tests.faults.test_ranks``).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.service import Service, kill, until
from tests.e2e.specs import script, slow

pytestmark = pytest.mark.e2e
STEPS = 200
"""Of some 80 ms each, so that a job still runs when its fault comes; of a few once that is over,
because nothing waits for them."""


@pytest.mark.parametrize("name", ["api", "scheduler", "broker"])
def test_a_killed_program_comes_back_and_the_job_ends_as_if_nothing_had_happened(
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


def test_a_job_submitted_while_the_broker_is_away_starts(lockstep: Service) -> None:
    # Stopped, not killed: a frozen broker is the case in which a publish would block a request.
    # That none does is
    # tested in tests/api/test_server.py, with so many submits that it shows on a busy machine.
    broker = lockstep.program("broker")
    broker.suspend()
    try:
        job = lockstep.submit(script("no-broker", ["true"]))
    finally:
        broker.resume()
    assert lockstep.ended(job["id"])["state"] == "succeeded"


def test_down_stops_the_jobs_and_the_next_up_goes_on_from_their_checkpoint(
    lockstep: Service, tmp_path: Path
) -> None:
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
