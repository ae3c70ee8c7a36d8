"""The step of a cycle that adds device use to the ledger."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.training.metrics import StepValues
from lockstep.scheduler.cycle import Cycle
from lockstep.storage.attempts import attempts, ledger
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.db.people_tables import LedgerRow
from lockstep.storage.series import series, streams
from tests.scheduler.world import World


def _ends(world: World, claim: Claim, reason: Reason, steps: range) -> None:
    with world.database.series() as session:
        records = [StepValues(step, float(step), {"loss": 1.0}) for step in steps]
        assert series.append(
            session,
            assignment_id=claim.assignment_id,
            token=claim.token,
            offset_before=0,
            offset_after=9,
            records=records,
        )
        streams.seal(
            session, claim.assignment_id, job_id=claim.job_id, attempt=claim.attempt_number
        )
    with world.database.jobs() as session:
        outcome = Outcome.of(reason, "it ended")
        attempts.end(session, claim.assignment_id, claim.token, outcome, timings=world.timings)
        assert attempts.release(session, claim.assignment_id, claim.node_name)


def _rows(world: World) -> list[LedgerRow]:
    with world.database.read_jobs() as session:
        return list(session.scalars(select(LedgerRow).order_by(LedgerRow.attempt)))


def test_a_cycle_adds_released_devices_once_with_the_repeated_steps(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.node("n")
    job = world.submit()
    assert world.run_one().accounted == 0
    _ends(world, world.claim(job), Reason.SHUTDOWN, range(1, 71))
    assert world.run_one().accounted == 1
    _ends(world, world.claim(job), Reason.SUCCEEDED, range(51, 151))

    def away(*_args: object) -> None:
        raise LockstepError(ErrorCode.UNAVAILABLE, "the series database does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(streams, "steps", away)
        report = world.run_one()
    assert (report.accounted, report.failed) == (0, ["ledger"])
    assert world.run_one().accounted == 1
    assert world.run_one().accounted == 0
    first, second = _rows(world)
    assert (first.attempt, first.repeated, second.attempt) == (1, 0.0, 2)
    ran = second.productive + second.repeated
    assert second.repeated == pytest.approx(0.2 * ran)
    assert ran > 0


def test_a_full_disk_that_stops_the_ledger_stops_no_deletion(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion makes the room that the ledger needs."""
    world.node("n")
    job = world.submit()
    world.run_one()
    _ends(world, world.claim(job), Reason.SUCCEEDED, range(1, 2))
    done: list[str] = []

    def full(*_args: object) -> None:
        raise LockstepError(ErrorCode.STORAGE_FULL, "no room is left")

    monkeypatch.setattr(Cycle, "expire", lambda _cycle: done.append("expired"))
    monkeypatch.setattr(ledger, "add", full)
    with pytest.raises(LockstepError, match="no room"):
        world.run_one()
    assert done == ["expired"]
