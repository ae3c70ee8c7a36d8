"""Restores of a backup between two cycles, or during one."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from lockstep.domain.errors import LockstepError
from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.scheduling.state import WaitCode
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.tables import AssignmentRow, SchedulerLeaseRow
from tests.scheduler.world import World


def restore(world: World, *, seconds: float, **columns: object) -> None:
    """Write the rows of a backup: leases that have expired, and the lease of an old cycle."""
    then = db_now() - seconds
    with world.database.jobs() as session:
        session.execute(update(AssignmentRow).values(lease_expires_at=then))
        session.execute(
            update(SchedulerLeaseRow).values(expires_at=then, finished_at=then, **columns)
        )


def claimed(world: World) -> str:
    world.node("n", 4)
    job = world.submit()
    world.run_one()
    world.claim(job)
    return job


def test_a_restore_during_a_cycle_loses_no_lease(world: World) -> None:
    job = claimed(world)
    pending = [True]

    def restored_at_the_first_read(database: str, kind: str, _seconds: float) -> None:
        if (database, kind) == ("jobs", "read") and pending and pending.pop():
            restore(world, seconds=600)

    world.database.tell_waits(restored_at_the_first_read)
    with pytest.raises(LockstepError, match="a backup was restored"):
        world.run_one()
    assert not pending
    assert world.run_one().lost == 0
    assert world.state(job) is JobState.RUNNING


def test_a_restore_extends_leases_for_a_backup_of_any_age(
    world: World,
) -> None:
    job = claimed(world)
    restore(world, seconds=1, place="of the backup")
    report = world.run_one()
    assert (report.spared, report.lost) == (1, 0)
    assert world.state(job) is JobState.RUNNING


def test_no_job_starts_after_a_restore_before_every_fence_has_passed(world: World) -> None:
    """An attempt that the backup lacks may still run, on devices that appear to be free."""
    world.node("n", 4)
    world.run_one()
    restore(world, seconds=1, place="of the backup")
    job = world.submit()
    assert world.run_one().placed == 0
    assert world.job(job).wait_code == WaitCode.RESTORED
    world.hear("n")
    with world.database.jobs() as session:
        past = db_now() - world.timings.replace_after_seconds
        session.execute(update(SchedulerLeaseRow).values(restored_at=past))
    assert world.run_one().placed == 1


def test_an_untouched_database_is_not_taken_for_a_restored_one(world: World) -> None:
    job = claimed(world)
    for owner in ("one", "two", "one"):
        assert world.run_one(owner).spared == 0
    assert world.state(job) is JobState.RUNNING
