"""``python -m lockstep.scheduler`` with its broker, without it, and without its database."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.pool import NullPool

from lockstep.broker.messages import WakeScheduler
from lockstep.broker.publisher import Publisher
from lockstep.domain.life.lifecycle import JobState
from lockstep.storage.db.database import Database
from tests.harness.databases import Urls
from tests.harness.processes import Broker, Scheduler, inherited, running_broker, until
from tests.scheduler.world import World

SOON_SECONDS = 60.0
"""Deadline for a program that starts on a busy machine."""
SLOW = 100.0
"""With timings that are this many times longer, the second cycle comes after 500 s.

An earlier effect has another cause.
"""
END_SECONDS_MAX = 60.0


Start = Callable[..., Scheduler]


@pytest.fixture
def start(tmp_path: Path, database_urls: Urls) -> Iterator[Start]:
    started: list[Scheduler] = []

    def one(broker_url: str, *, timings_scale: float = 1.0) -> Scheduler:
        scheduler = Scheduler(
            tmp_path, database_urls, broker_url, timings_scale=timings_scale, number=len(started)
        )
        started.append(scheduler)
        return scheduler

    yield one
    for scheduler in started:
        scheduler.process.kill()
        scheduler.process.wait()


def starts(world: World, job: str) -> None:
    def placed() -> bool:
        world.hear("n")  # its agent does the same: a slow test must not lose its node
        return world.state(job) is JobState.STARTING

    until(placed, SOON_SECONDS, "the job's placement")


def test_a_queued_job_is_placed_without_any_broker(world: World, start: Start) -> None:
    world.node("n")
    job = world.submit()
    with running_broker(started=False) as absent:
        scheduler = start(absent.url)
        starts(world, job)
        later = world.submit()
        starts(world, later)
        assert scheduler.end() < END_SECONDS_MAX


@pytest.mark.parametrize("database_urls", ["sqlite"], indirect=True)
def test_a_notification_starts_a_cycle_at_once_and_the_node_is_notified(
    world: World, start: Start, broker: Broker
) -> None:
    """Cycles are a minute apart here, so only the notification can have caused this one."""
    world.node("n")
    first = world.submit()
    start(broker.url, timings_scale=30)
    starts(world, first)
    publisher = Publisher(broker.url)
    second = world.submit()

    def placed() -> bool:
        publisher.publish(WakeScheduler())
        return world.state(second) is JobState.STARTING

    until(placed, SOON_SECONDS, "a cycle after a notification")
    publisher.close()
    with broker.client() as client:
        until(lambda: client.llen("lockstep:node.n") == 2, 60, "both notifications of the node")


@pytest.mark.parametrize("database_urls", ["sqlite"], indirect=True)
@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_cycles_continue_without_a_broker(
    fault: str, world: World, start: Start, broker: Broker
) -> None:
    world.node("n")
    start(broker.url)
    starts(world, world.submit())
    broker.kill() if fault == "killed" else broker.freeze()
    starts(world, world.submit())


def test_three_schedulers_of_which_one_is_killed_place_every_job_once(
    world: World, start: Start, broker: Broker
) -> None:
    world.node("n", 12)
    schedulers = [start(broker.url, timings_scale=0.5) for _ in range(3)]
    jobs = [world.submit() for _ in range(4)]
    for job in jobs:
        starts(world, job)
    schedulers[0].process.kill()
    more = [world.submit() for _ in range(4)]
    for job in more:
        starts(world, job)
    assert [len(world.assignments(job)) for job in (*jobs, *more)] == [1] * 8
    devices = [
        index for job in (*jobs, *more) for index in world.assignments(job)[0].device_indices
    ]
    assert sorted(devices) == list(range(8))


@pytest.mark.parametrize("database_urls", ["sqlite"], indirect=True)
def test_sigterm_ends_before_the_next_cycle_and_releases_the_lease(
    world: World, start: Start, broker: Broker
) -> None:
    world.node("n")
    job = world.submit()
    scheduler = start(broker.url, timings_scale=SLOW)
    starts(world, job)
    assert scheduler.end() < END_SECONDS_MAX
    assert world.run_one("another").held
    assert "Traceback" not in scheduler.log.read_text()


def test_a_setting_that_is_missing_is_named(tmp_path: Path) -> None:
    environment = inherited()
    done = subprocess.run(
        [sys.executable, "-m", "lockstep.scheduler"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 78
    assert "LOCKSTEP_DATABASE_URL: Field required" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_database_outage_is_logged_once_and_cycles_continue_after_it(
    postgres_urls: Urls, tmp_path: Path
) -> None:
    database = Database(*postgres_urls)
    world = World(database)
    world.node("n")
    with running_broker(started=False) as absent:
        scheduler = Scheduler(tmp_path, postgres_urls, absent.url, timings_scale=0.2, number=0)
        try:
            starts(world, world.submit())
            with shut(postgres_urls[0]):
                until(
                    lambda: "no reconcile cycles until" in scheduler.log.read_text(),
                    SOON_SECONDS,
                    "the complaint",
                )
                time.sleep(1)  # several more cycles fail in this time
            until(
                lambda: "answers again" in scheduler.log.read_text(), SOON_SECONDS, "the good news"
            )
            world.hear("n")
            starts(world, world.submit())
            assert scheduler.log.read_text().count("no reconcile cycles until") == 1
        finally:
            scheduler.process.kill()
            scheduler.process.wait()
            database.close()


@contextmanager
def shut(url: str) -> Iterator[None]:
    """Close all connections to the database and refuse new ones."""
    name = make_url(url).database
    server = create_engine(
        make_url(url).set(database="postgres"), isolation_level="AUTOCOMMIT", poolclass=NullPool
    )
    with server.connect() as connection:
        connection.execute(text(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false"))
        out = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name")
        connection.execute(out, {"name": name})
        yield
        connection.execute(text(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true"))
