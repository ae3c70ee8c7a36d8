"""A job whose spec only a newer scheduler can read waits with a reason, and delays no other job."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update

from lockstep.domain.life.lifecycle import JobState
from lockstep.scheduler.remembered import Remembered
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import JobRow
from tests.scheduler.world import World


@pytest.fixture
def world(database: Database) -> World:
    return World(database)


def written_by_a_newer_version(world: World, value: Any, **fields: Any) -> str:
    """Create a queued job whose spec has a field that is unknown to this version."""
    job = world.submit(**fields)
    spec = {**world.job(job).spec, "novel": value}
    with world.database.jobs() as session:
        session.execute(update(JobRow).where(JobRow.id == job).values(spec=spec))
    return job


def test_a_job_with_an_unknown_request_waits_with_the_reason(world: World) -> None:
    world.node("n", devices=1)
    job = written_by_a_newer_version(world, 3)
    other = world.submit()
    remembered = Remembered()
    first = world.run_one(remembered=remembered)
    assert (first.failed, first.again) == ([], True)
    assert (
        world.run_one(remembered=remembered).placed == 1
    )  # the device reserved for the first is free
    assert world.state(other) is JobState.STARTING
    row = world.job(job)
    assert (row.state, row.attempt_count, row.outcome) == (JobState.QUEUED, 0, None)
    assert row.wait_reason == (
        "upgrade the scheduler: Lockstep 0.1.0 cannot read the job's spec: unknown field novel = 3"
    )
    assert row.wait_position == 1


def test_it_is_forgotten_once_it_does_not_wait_any_more(world: World) -> None:
    world.node("n")
    job = written_by_a_newer_version(world, 3)
    remembered = Remembered()
    world.run_one(remembered=remembered)
    assert list(remembered.unreadable) == [job]
    with world.database.jobs() as session:
        session.execute(update(JobRow).where(JobRow.id == job).values(state=JobState.CANCELLED))
    world.run_one(remembered=remembered)
    assert remembered.unreadable == {}


def test_a_job_with_a_neutral_unknown_field_is_placed(world: World) -> None:
    world.node("n")
    job = written_by_a_newer_version(world, None)
    world.run_one()
    assert world.state(job) is JobState.STARTING
