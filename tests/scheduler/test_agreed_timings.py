"""Timings of all programs: stored by the scheduler, followed by a scheduler that started before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sqlalchemy import update

from lockstep.domain.life.timings import Timings
from lockstep.storage.control import agreed_timings
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import SchedulerLeaseRow
from tests.harness.databases import Urls
from tests.harness.processes import Scheduler, running_broker, until
from tests.scheduler.test_restored import restore
from tests.scheduler.world import World

QUICK = Timings(heartbeat_seconds=1.0, fence_seconds=5.0)


def stored(database: Database) -> Timings | None:
    with database.read_jobs() as session:
        return agreed_timings.stored(session)


def test_without_a_stored_value_every_program_has_the_defaults(world: World) -> None:
    with world.database.read_jobs() as session:
        assert agreed_timings.read(session) == Timings()
    assert stored(world.database) is None


def test_stored_values_that_are_not_valid_leave_the_timings_in_use(world: World) -> None:
    for values in ({"lease_seconds": 1.0}, {"lease_seconds": "long"}, {"lease_seconds": None}):
        with world.database.jobs() as session:
            session.execute(update(SchedulerLeaseRow).values(timings=values))
        world.timings = QUICK
        assert world.run_one().timings == QUICK


def test_the_scheduler_that_starts_last_decides_and_the_other_follows(world: World) -> None:
    assert world.run_one("first", store_timings=True).timings == Timings()
    world.timings = QUICK
    assert world.run_one("second", store_timings=True).timings == QUICK
    world.timings = Timings()
    assert world.run_one("first").timings == QUICK
    assert stored(world.database) == QUICK


def test_a_scheduler_without_the_lease_stores_nothing(world: World) -> None:
    restore(world, seconds=-5, owner="another")
    assert world.run_one(store_timings=True).timings is None
    assert stored(world.database) is None


def test_a_backup_does_not_bring_its_timings_back(world: World) -> None:
    world.run_one(store_timings=True)
    world.timings = QUICK
    restore(world, seconds=1, place="of the backup")
    assert world.run_one().timings == QUICK
    assert stored(world.database) == QUICK


def test_the_program_stores_the_timings_of_its_environment(
    database: Database, database_urls: Urls, tmp_path: Path
) -> None:
    with running_broker(started=False) as absent:
        scheduler = Scheduler(
            tmp_path,
            database_urls,
            absent.url,
            timings_scale=2.0,
            number=0,
            LOCKSTEP_LEASE_SECONDS="65",
        )
        try:
            wanted = Timings(lease_seconds=65.0).scaled(2.0)
            until(lambda: stored(database) == wanted, 60.0, "the timings are stored")
            scheduler.end()
        finally:
            scheduler.process.kill()
            scheduler.process.wait()


def test_the_program_refuses_an_order_that_is_not_safe_and_a_value_out_of_range() -> None:
    environment = {
        **os.environ,
        "LOCKSTEP_DATABASE_URL": "sqlite:////nowhere/jobs.db",
        "LOCKSTEP_BROKER_URL": "redis://localhost:1/0",
        "LOCKSTEP_STORE": "/nowhere",
    }
    for name, value, message in (
        (
            "LOCKSTEP_FENCE_SECONDS",
            "60",
            "scheduler: fence_seconds must be less than lease_seconds, got 60 and 60: otherwise "
            "two attempts of one job could run at the same time; lower LOCKSTEP_FENCE_SECONDS or "
            "raise LOCKSTEP_LEASE_SECONDS\n",
        ),
        (
            "LOCKSTEP_HEARTBEAT_SECONDS",
            "0.1",
            "scheduler: LOCKSTEP_HEARTBEAT_SECONDS: Input should be greater than or equal to 0.5\n",
        ),
    ):
        argv = [sys.executable, "-m", "lockstep.scheduler"]
        done = subprocess.run(
            argv, env={**environment, name: value}, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (78, message)
