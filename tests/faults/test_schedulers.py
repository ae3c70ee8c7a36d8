"""Three schedulers, of which the one that holds the lease is killed during its cycle (F25).

Not here: a cycle that stops half way for another reason (``tests.scheduler``).
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import select

from lockstep.storage.db.people_tables import LedgerRow
from lockstep.storage.db.tables import AssignmentRow, SchedulerLeaseRow
from tests.harness.databases import Urls
from tests.harness.drills import Drill, fresh_seed
from tests.harness.plane import PATIENCE_SECONDS, Plane, noted, running_plane, script, starts_noted
from tests.harness.processes import until

SECONDS: Final = 60.0
EVERY_SECONDS: Final = 10.0
SCHEDULERS: Final = 3
RANDOM_KILLS: Final = 50
DEVICES: Final = 100
SUBMIT_SECONDS: Final = 1.0
"""Between two jobs, so that cycles always have work."""


@pytest.mark.drill
@pytest.mark.timeout(600)
def test_every_job_is_placed_once_despite_killed_schedulers(
    database_urls: Urls, tmp_path: Path, drill: Drill
) -> None:
    seed = fresh_seed()
    kind = database_urls[0].partition(":")[0].partition("+")[0]
    chance = drill.begin(
        "F25", f"{kind}: SIGKILL the leader of 3 schedulers", seed=seed, recovery=15.0
    )
    starts = tmp_path / "starts"
    with running_plane(
        tmp_path, database_urls, scale=1.0, devices=DEVICES, schedulers=SCHEDULERS
    ) as plane:
        jobs: set[str] = set()
        over = threading.Event()
        crowd = threading.Thread(target=submit_until, args=(plane, starts, jobs, over))
        crowd.start()
        ends_at = time.monotonic() + SECONDS
        try:
            in_a_cycle = 0
            while time.monotonic() < ends_at:
                next_at = time.monotonic() + EVERY_SECONDS
                in_a_cycle += kill_the_leader(plane, drill)
                plane.start_scheduler()
                time.sleep(max(0.0, next_at - time.monotonic() - chance.random()))
        finally:
            over.set()
            crowd.join()
        print(
            f"seed {seed}: {drill.injected} killed, {in_a_cycle} of them while they held the "
            f"pass; {len(jobs)} jobs"
        )
        ended = plane.all_end(jobs, 2 * PATIENCE_SECONDS)
        attempts, told = plane.attempts(), starts_noted(starts)
    drill.lost = len(jobs) - Counter(ended.values())["succeeded"]
    drill.doubled = sum(attempts.values()) - len(jobs) + sum(told.values()) - len(jobs)
    assert in_a_cycle > 0, "no scheduler was killed while it held the lease"
    assert attempts == told == dict.fromkeys(jobs, 1)


@pytest.mark.drill
@pytest.mark.timeout(900)
def test_the_ledger_adds_up_when_schedulers_are_killed_at_random(
    database_urls: Urls, tmp_path: Path
) -> None:
    seed = fresh_seed()
    chance, starts = random.Random(seed), tmp_path / "starts"
    with running_plane(tmp_path, database_urls, scale=1.0, devices=DEVICES, schedulers=2) as plane:
        jobs: set[str] = set()
        over = threading.Event()
        crowd = threading.Thread(target=submit_until, args=(plane, starts, jobs, over))
        crowd.start()
        try:
            for _ in range(RANDOM_KILLS):
                time.sleep(chance.uniform(0.0, 2.5))
                live = [each for each in plane.schedulers if each.process.poll() is None]
                victim = chance.choice(live)
                victim.process.kill()
                victim.process.wait()
                plane.start_scheduler()
        finally:
            over.set()
            crowd.join()
        print(f"seed {seed}: {RANDOM_KILLS} killed; {len(jobs)} jobs")
        plane.all_end(jobs, 2 * PATIENCE_SECONDS)
        until(lambda: not unaccounted(plane), PATIENCE_SECONDS, "a row for each assignment")
        assert plane.attempts() == starts_noted(starts) == dict.fromkeys(jobs, 1)
        with plane.database.read_jobs() as session:
            rows = {row.assignment_id: row for row in session.scalars(select(LedgerRow))}
            parts = list(session.scalars(select(AssignmentRow)))
    assert rows.keys() == {part.id for part in parts}
    for part in parts:
        row = rows[part.id]
        assert part.released_at is not None
        held = (part.released_at - part.created_at) * len(part.device_indices)
        assert abs(row.productive + row.repeated + row.idle - held) < 1e-6


def unaccounted(plane: Plane) -> list[str]:
    with plane.database.read_jobs() as session:
        return list(
            session.scalars(select(AssignmentRow.id).where(AssignmentRow.accounted_at.is_(None)))
        )


def submit_until(plane: Plane, starts: Path, jobs: set[str], over: threading.Event) -> None:
    with plane.client() as client:
        while not over.wait(SUBMIT_SECONDS):
            jobs.add(client.submit(script(noted(starts))).id)


def kill_the_leader(plane: Plane, drill: Drill) -> bool:
    """SIGKILL the holder of the lease at this moment, and wait for the next cycle.

    Return True if it died with the lease.
    """
    owner = None
    deadline = time.monotonic() + PATIENCE_SECONDS
    while owner is None:  # polled at full speed, because a cycle takes milliseconds
        assert time.monotonic() < deadline, "no scheduler runs cycles"
        owner, _finished_at = held_by(plane)
    pid = int(owner.split(":")[1])
    (victim,) = [each for each in plane.schedulers if each.process.pid == pid]
    victim.process.kill()
    victim.process.wait()
    killed = time.monotonic()
    drill.injected += 1
    left, finished_at = held_by(plane)

    def led_again() -> bool:
        now, finished = held_by(plane)
        return now not in (None, owner) or finished != finished_at

    until(led_again, PATIENCE_SECONDS, "a cycle of another scheduler")
    drill.recoveries.append(time.monotonic() - killed)
    return left == owner


def held_by(plane: Plane) -> tuple[str | None, float | None]:
    with plane.database.read_jobs() as session:
        owner, finished_at = session.execute(
            select(SchedulerLeaseRow.owner, SchedulerLeaseRow.finished_at)
        ).one()
    return owner, finished_at
