"""Lost notifications do not lose jobs: death of api (F6) or broker (F7), empty (F8), frozen (F9).

Not here: messages that come three times, or late (``test_ends_and_notifications``).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
import pytest
from sqlalchemy import make_url

from lockstep.client.api import Client
from lockstep.client.errors import UnreachableError
from lockstep.storage.db.tables import AssignmentRow
from tests.harness.databases import Urls
from tests.harness.drills import Drill, fresh_seed, long
from tests.harness.node import NAME
from tests.harness.plane import (
    ENDED,
    PATIENCE_SECONDS,
    Plane,
    noted,
    running,
    running_plane,
    script,
    starts_noted,
)
from tests.harness.processes import stop_between_writes, until

RARE: Final = 10.0
"""A cycle every 20 s, a heartbeat every 50 s: an earlier effect comes from a notification."""
DEVICES: Final = 25
FLUSH_SECONDS: Final = 0.2
WARM_CYCLES: Final = 3
"""After this number, a program has opened all its permanent resources."""
GROWTH_FDS_MAX: Final = 4
"""Fewer than the number of cycles after the first ones.

It allows for one more job that is just ending, but not for a socket per broker.
"""
GROWTH_BYTES_MAX: Final = 8 * 1024 * 1024
AGAIN_SECONDS: Final = 0.5


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory, migrated_urls: Urls) -> Iterator[Plane]:
    folder = tmp_path_factory.mktemp("plane")
    with running_plane(folder, migrated_urls, scale=1.0, devices=DEVICES) as started:
        yield started


@pytest.mark.parametrize("times", [1, long(10)])
def test_a_job_whose_notification_died_with_the_api_starts_once(
    plane: Plane, drill: Drill, times: int
) -> None:
    drill.begin("F6", "SIGKILL the api between commit and notification", recovery=5.0)
    starts = plane.folder / f"starts-without-notification-{times}"
    dying = plane.new_api("tests.harness.faults.dying", "notification")
    jobs = set()
    for number in range(times):
        dying.start()
        key = f"no-notification-{number}-of-{times}"
        spec = script(noted(starts), name=key)
        with (
            plane.client(dying.url, patience_seconds=0.0) as client,
            pytest.raises(UnreachableError),
        ):
            client.submit(spec, idempotency_key=key)
        died = time.monotonic()
        assert dying.process is not None
        assert dying.process.wait(PATIENCE_SECONDS) == -signal.SIGKILL
        dying.end()
        drill.injected += 1
        with plane.client() as client:
            job = client.submit(spec, idempotency_key=key).id
            until(
                lambda job=job: client.job(job).state != "queued",
                PATIENCE_SECONDS,
                "the job starts",
            )
        drill.recoveries.append(time.monotonic() - died)
        jobs.add(job)
    assert set(plane.all_end(jobs).values()) == {"succeeded"}
    told = starts_noted(starts)
    drill.lost = len(jobs - set(told))
    attempts = plane.attempts()
    drill.doubled = sum(attempts[job] for job in jobs) - times
    assert told == dict.fromkeys(jobs, 1)


@pytest.mark.parametrize("jobs", [10, long(100, seconds=600)])
def test_jobs_whose_notifications_were_lost_start_once(
    plane: Plane, drill: Drill, jobs: int
) -> None:
    """Stop the agent while its notifications accumulate, so that it receives none of them.

    Later ones expire within moments.
    """
    drill.begin("F8", f"broker flushed with {jobs} queued jobs")
    starts = plane.folder / f"starts-{jobs}"
    until(plane.idle, PATIENCE_SECONDS, "devices that are all free")
    agent = psutil.Process(plane.processes()["agent"].pid)
    with plane.client() as client, plane.broker.client() as broker:
        stop_between_writes([agent], databases_of(plane))
        try:
            new = {client.submit(script(noted(starts))).id for _job in range(jobs)}
            waiting = min(jobs, DEVICES)
            queue = f"lockstep:node.{NAME}"
            until(
                lambda: int(broker.llen(queue)) >= waiting,
                PATIENCE_SECONDS,
                "a notification for each job that has a place",
            )
            broker.flushall()
            drill.injected += 1
        finally:
            agent.resume()
        thawed = time.monotonic()
        while not {plane.states()[job] for job in new} <= ENDED:
            assert time.monotonic() < thawed + 2 * PATIENCE_SECONDS, "the jobs do not end"
            time.sleep(FLUSH_SECONDS)
            broker.flushall()
            drill.injected += 1
    drill.recoveries.append(time.monotonic() - thawed)
    told, attempts = (
        starts_noted(starts),
        {job: times for job, times in plane.attempts().items() if job in new},
    )
    drill.lost = len(new - set(told))
    drill.doubled = sum(told.values()) + sum(attempts.values()) - 2 * len(new)
    assert told == attempts == dict.fromkeys(new, 1)


def databases_of(plane: Plane) -> Path:
    """Return the folder of its SQLite files."""
    return Path(str(make_url(plane.urls[0]).database)).parent


@contextmanager
def frozen(process: psutil.Process) -> Iterator[None]:
    process.suspend()
    try:
        yield
    finally:
        process.resume()


@pytest.mark.drill
@pytest.mark.timeout(600)
def test_a_frozen_broker_keeps_no_submit_waiting(plane: Plane, drill: Drill) -> None:
    drill.begin("F9", "broker frozen under 200 submits; seconds are p99", recovery=0.1)
    assert plane.broker.process is not None

    def submits(_worker: int) -> list[tuple[str, float]]:
        with plane.client(
            patience_seconds=0.0
        ) as mine:  # every answer must be a job, at the first try
            return [_timed_submit(mine) for _submit in range(100)]

    until(plane.idle, PATIENCE_SECONDS, "devices that are all free")
    with plane.client() as client, plane.api.client() as http, ThreadPoolExecutor(2) as pool:
        client.submit(
            script("ranks(); finish()")
        )  # the publisher has a connection, which is the one that hangs
        # The jobs start afterwards, because a hundred launchers at once would dominate the
        # measurement.
        assert http.post(f"/v1/nodes/{NAME}/drain").is_success
        calm = [answer for worker in pool.map(submits, range(2)) for answer in worker]
        with frozen(psutil.Process(plane.broker.process.pid)):
            drill.injected += 1
            answers = [answer for worker in pool.map(submits, range(2)) for answer in worker]
        assert http.post(f"/v1/nodes/{NAME}/resume").is_success
    drill.recoveries.append(p99(answers))
    print(
        f"p99 {p99(calm):.3f} s with a broker that answers, {p99(answers):.3f} s with one that "
        f"does not"
    )
    jobs = {job for job, _took in calm + answers}
    ended = plane.all_end(jobs, 2 * PATIENCE_SECONDS)
    drill.lost = len(jobs - set(ended))
    assert set(ended.values()) == {"succeeded"}
    attempts = plane.attempts()
    drill.doubled = sum(attempts[job] for job in jobs) - len(jobs)


def p99(answers: list[tuple[str, float]]) -> float:
    seconds = sorted(took for _job, took in answers)
    return seconds[int(0.99 * len(seconds))]


def _timed_submit(client: Client) -> tuple[str, float]:
    began = time.monotonic()
    job = client.submit(script("ranks(); finish()"))
    return job.id, time.monotonic() - began


@pytest.mark.drill
@pytest.mark.timeout(600)
def test_notifications_arrive_after_each_of_ten_broker_kills(
    sqlite_urls: Urls, tmp_path: Path, drill: Drill
) -> None:
    seed = fresh_seed()
    chance = drill.begin("F7", "broker killed and started again", seed=seed, recovery=5.0)
    with (
        running_plane(tmp_path, sqlite_urls, scale=RARE, devices=DEVICES) as plane,
        plane.client() as client,
    ):
        job = client.submit(script(running(flag := tmp_path / "flag"))).id
        until(lambda: client.job(job).state == "running", PATIENCE_SECONDS, "a running job")
        sizes: dict[str, list[tuple[int, int]]] = {}
        for _cycle in range(10):
            plane.broker.kill()
            drill.injected += 1
            time.sleep(chance.uniform(0.0, 4.0))  # the duration of the outage is varied
            plane.broker.start()
            drill.recoveries.append(_heard(plane))
            for name, process in plane.processes().items():
                sizes.setdefault(name, []).append(
                    (open_apart_from_databases(process), process.memory_info().rss)
                )
        assert {
            name: [fds for fds, _rss in each] for name, each in sizes.items() if _grows(each)
        } == {}, sizes
        shown = client.job(job)
        assert (shown.state, shown.attempt.number) == ("running", 1)
        plane.end_gapless(job, flag, drill)
        for name, each in sizes.items():
            megabytes = [rss >> 20 for _fds, rss in (each[WARM_CYCLES], each[-1])]
            print(
                f"{name}: {each[WARM_CYCLES][0]} to {each[-1][0]} fds, {megabytes[0]} to "
                f"{megabytes[1]} MB"
            )


def _heard(plane: Plane) -> float:
    """Return the seconds until a job that is submitted now was placed and claimed.

    This takes two notifications. The job is submitted repeatedly, as a cycle notifies repeatedly:
    the first notification may use a connection that has just broken.
    """
    before, began, again_at = _claims(plane), time.monotonic(), 0.0
    with plane.client() as client:
        while _claims(plane) == before:
            waited = time.monotonic() - began
            assert waited < PATIENCE_SECONDS, "no notification is heard"
            if waited >= again_at:
                client.submit(script("ranks(); finish()", name="notification"))
                again_at = waited + AGAIN_SECONDS
            time.sleep(0.02)
    return time.monotonic() - began


def _claims(plane: Plane) -> int:
    with plane.database.read_jobs() as session:
        return session.query(AssignmentRow).filter(AssignmentRow.claimed_at.is_not(None)).count()


def open_apart_from_databases(process: psutil.Process) -> int:
    """Return the number of its open files, except for those of databases.

    A pool's connections change with the work, and their number has its own limit.
    """
    links = [
        link.readlink() for link in Path(f"/proc/{process.pid}/fd").iterdir() if link.is_symlink()
    ]
    return sum(".db" not in link.name for link in links)


def _grows(sizes: list[tuple[int, int]]) -> bool:
    """Return True if a program grew after its first cycles.

    It then has clearly more open files or memory.
    """
    fds, rss = sizes[WARM_CYCLES]
    return sizes[-1][0] > fds + GROWTH_FDS_MAX or sizes[-1][1] > rss + GROWTH_BYTES_MAX
