"""All faults together, for twenty minutes (P1 to P6).

Under load, with a random fault every twenty seconds.
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from pathlib import Path
from typing import Final

import psutil
import pytest
from sqlalchemy import func, select

from lockstep.domain.life.attempt import MARK_VARIABLE
from lockstep.storage.db.series_tables import StreamRow
from lockstep.storage.db.tables import (
    AssignmentRow,
    AttemptRow,
    DeviceRow,
    EventRow,
    SchedulerLeaseRow,
)
from lockstep.storage.series import series_query
from tests.harness.databases import Urls
from tests.harness.faults.soak import Load, Seen, Soak
from tests.harness.node import FAKE_LAUNCHER, Node
from tests.harness.plane import ENDED, Plane, running_plane
from tests.harness.processes import until

SCALE: Final = 0.2
"""Heartbeat 1 s, fence 10 s, lease 12 s."""
SETTLE_SECONDS: Final = 60.0
WARM_SECONDS: Final = 60.0
"""Part of a program's life in which its pools and caches fill."""
GROWTH_BYTES_MAX: Final = 24 * 1024 * 1024
GROWTH_DESCRIPTORS_MAX: Final = 60
"""Open files of two pools.

Each of them may have lent more connections than it keeps, each with the three files of an SQLite
database.
"""
POINTS_MAX: Final = 1_000_000
UNSENT: Final = {"lost", "unanswered"}
"""Of these attempts only data from before the end is stored; of all others everything."""


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_service_under_load_and_fire_keeps_every_promise(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Load.from_environment()
    print(f"\n{load}")
    urls: Urls = request.getfixturevalue(
        f"{os.environ.get('LOCKSTEP_SOAK_DATABASE', 'sqlite')}_urls"
    )
    temporary, written = tmp_path / "tmp", tmp_path / "written"
    temporary.mkdir()
    written.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with running_plane(tmp_path, urls, scale=SCALE, devices=load.jobs, schedulers=2) as plane:
        settle_api(plane, temporary)
        second = Node(tmp_path, plane.database, urls, plane.broker.url, scale=SCALE, name="second")
        try:
            second.start(launcher=FAKE_LAUNCHER, LOCKSTEP_CPU_SLOTS=str(load.jobs))
            soak = Soak(plane, second, load, written)
            soak.run()
            print(
                f"faults: {dict(soak.faults)}; {len(soak.accepted.points)} jobs, {soak.looks} looks"
            )
            assert not soak.broken, soak.broken[:10]
            check_jobs(soak)
            check_points(soak)
            check_nothing_is_held(soak)
            check_flat(soak.held)
            left = processes_of(tmp_path, [process.pid for process in soak.programs().values()])
            assert not left, left
        finally:
            second.close()
    check_files(soak, temporary)


def settle_api(plane: Plane, temporary: Path) -> None:
    """Keep the api's address after a restart, as behind a name."""
    plane.api.environment["LOCKSTEP_PORT"] = plane.api.url.rpartition(":")[2]
    plane.api.environment["TMPDIR"] = str(temporary)


def check_jobs(soak: Soak) -> None:
    """Check that each accepted job exists and ended exactly once.

    Those without a cancel have succeeded.
    """
    states = soak.plane.states()
    assert states.keys() == soak.accepted.points.keys(), "a job was lost, or came from nowhere"
    with soak.plane.database.read_jobs() as session:
        ends = (
            select(EventRow.job_id, func.count())
            .where(EventRow.kind.in_(ENDED))
            .group_by(EventRow.job_id)
        )
        counted = dict(session.execute(ends).all())
        placed = (
            select(EventRow.job_id, func.count())
            .where(EventRow.kind == "placed")
            .group_by(EventRow.job_id)
        )
        placements = dict(session.execute(placed).all())
    assert counted == dict.fromkeys(states, 1), {
        job: count for job, count in counted.items() if count != 1
    }
    attempts = soak.plane.attempts()
    assert attempts == Counter(placements), "an attempt without an event"
    assert set(states.values()) <= ENDED, Counter(states.values())
    wrong = {
        job: state
        for job, state in states.items()
        if state != "succeeded" and job not in soak.accepted.cancelled
    }
    assert not wrong, {job: soak.plane.node.events(job) for job in list(wrong)[:3]}
    asked = len(soak.accepted.cancelled)
    print(
        f"{Counter(states.values())}, {asked} cancels asked; {attempts.total() - len(attempts)} "
        f"attempts more than jobs"
    )


def check_points(soak: Soak) -> None:
    """Check that all stored points of each attempt are those of its rank.

    They begin with the first one, and each is there once.
    """
    wrong = []
    stored = 0
    with soak.plane.database.read_jobs() as session:
        attempts = session.execute(
            select(AttemptRow.job_id, AttemptRow.number, AttemptRow.outcome)
        ).all()
    last = soak.plane.attempts()
    states = soak.plane.states()
    with soak.plane.database.read_series() as session:
        for job, number, outcome in attempts:
            views = series_query.read(
                session, job, names=["loss"], attempts="all", max_points=POINTS_MAX
            )
            steps = next((view.step for view in views if view.attempt == number), [])
            values = next((view.value for view in views if view.attempt == number), [])
            file = soak.written / f"{job} {number}"
            written = file.stat().st_size if file.exists() else 0
            # Killed between a point and its record, it has written one more.
            least = 0 if outcome["reason"] in UNSENT else written
            whole = number == last[job] and states[job] == "succeeded"
            good = (
                steps == list(range(1, len(steps) + 1))
                and values == [step / 2 for step in steps]
                and least <= len(steps) <= written + 1
                and (not whole or len(steps) == soak.accepted.points[job])
            )
            stored += len(steps)
            if not good:
                wrong.append(
                    (
                        job,
                        number,
                        outcome["reason"],
                        f"{written} written, {len(steps)} stored",
                        steps[:5],
                    )
                )
    assert not wrong, (len(wrong), wrong[:5])
    print(
        f"{stored} points, each once; attempts ended by "
        f"{Counter(one.outcome['reason'] for one in attempts)}"
    )


def check_nothing_is_held(soak: Soak) -> None:
    """Check that no device, part, stream or lease is held."""

    def held() -> list[str]:
        with soak.plane.database.read_jobs() as session:
            devices = session.scalars(
                select(DeviceRow.assignment_id).where(DeviceRow.assignment_id.is_not(None))
            ).all()
            parts = session.scalars(
                select(AssignmentRow.id).where(AssignmentRow.state != "released")
            ).all()
        with soak.plane.database.read_series() as session:
            streams = session.scalars(
                select(StreamRow.assignment_id).where(StreamRow.sealed.is_(False))
            ).all()
        folders = [
            path
            for node in soak.nodes.values()
            for path in node.dir.iterdir()
            if path.name[0] != "."
        ]
        return [str(one) for one in (*devices, *parts, *streams, *folders)]

    until(lambda: not held(), SETTLE_SECONDS, "everything is given back")
    free = select(func.count()).where(SchedulerLeaseRow.owner.is_(None))

    def no_cycle_runs() -> bool:
        with soak.plane.database.read_jobs() as session:
            return session.execute(free).scalar_one() == 1

    until(no_cycle_runs, SETTLE_SECONDS, "the lease is released")


def check_flat(held: dict[tuple[str, int], list[Seen]]) -> None:
    """Check that no program grew during its life, after its start phase."""
    grown = {}
    most: dict[str, tuple[int, int]] = {}
    for (name, pid), seen in held.items():
        warm = [one for one in seen if one.warm_seconds >= WARM_SECONDS]
        if len(warm) < 2:
            continue
        more = (
            warm[-1].descriptors - warm[0].descriptors,
            warm[-1].resident_bytes - warm[0].resident_bytes,
        )
        most[name] = max(most.get(name, more), more, key=lambda one: one[1])
        if more[0] > GROWTH_DESCRIPTORS_MAX or more[1] > GROWTH_BYTES_MAX:
            grown[name, pid] = more
    told = {name: f"{more[0]:+d} fds, {more[1] / 2**20:+.1f} MiB" for name, more in most.items()}
    print(f"grown at most, of {len(held)} processes: {told}")
    assert not grown, {who: held[who][:: max(1, len(held[who]) // 12)] for who in grown}


def processes_of(folder: Path, known: list[int]) -> list[str]:
    """Return the processes in attempts' folders that are none of the programs."""
    found = []
    for process in psutil.process_iter():
        try:
            mark = process.environ().get(MARK_VARIABLE, "")
            if (
                mark.startswith(str(folder))
                and process.pid not in known
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(f"{process.pid} {process.cmdline()} of {mark}")
        except psutil.Error:
            continue
    return found


def check_files(soak: Soak, temporary: Path) -> None:
    """Check that no temporary file is left, and no lock is held."""
    assert list(temporary.iterdir()) == []
    for node in soak.nodes.values():
        with (node.dir / ".lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
