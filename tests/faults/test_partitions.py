"""A node that is cut off (F15), and nodes whose clocks are wrong (F17).

Only the database decides on the owner of a job, and since when. On PostgreSQL only: SQLite is a
file of the node's own machine, and its clock is that machine's.

Not here: a node that dies, or stands still (``test_node``).
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from lockstep.storage.db.tables import AssignmentRow
from lockstep.storage.series import series_query
from lockstep.system.processes import ProcessSnapshot, boottime
from lockstep.worker.launch.identity import started_in
from tests.harness.databases import Urls
from tests.harness.drills import Drill, fresh_seed
from tests.harness.network import Link, through, to_postgres, to_unix
from tests.harness.node import Node
from tests.harness.plane import PATIENCE_SECONDS, Plane, running_plane, script
from tests.harness.processes import until

SCALE: Final = 0.2
"""Heartbeat 1 s, fence 10 s, lease 12 s, placed again after 14 s."""
REAL_LAUNCHER: Final[list[str]] = []
PARTITIONS: Final = 3
LAUNCH_SECONDS: Final = 15.0
"""Time in which a new attempt is prepared and launched, and writes.

With the lease, this is the limit of recovery.
"""
STOP_SECONDS: Final = 2.0
"""Time in which a launcher kills its ranks after its fence."""
POINTS_MAX: Final = 1_000_000
HOUR: Final = 3600
NAMES: Final = ("ahead", "behind")

BEATS = """
import json, os, sys, time
beats, enough = sys.argv[1:]
step = 0
while not os.path.exists(enough):
    step += 1
    with open(os.environ["LOCKSTEP_METRICS"], "a") as file:
        file.write(json.dumps({"step": step, "loss": step}) + "\\n")
    with open(beats, "a") as file:
        file.write(f"{os.environ['LOCKSTEP_ATTEMPT']} {time.clock_gettime(time.CLOCK_BOOTTIME)}\\n")
    time.sleep(0.05)
"""
COUNT_UNTIL_ENOUGH = """
import pathlib
ranks(); event("running")
def each(turn):
    metric({{"step": turn + 1, "loss": turn}})
    if pathlib.Path({enough!r}).exists(): finish()
until_told(each)
"""


# -- F15
# --------------------------------------------------------------------------------------------------


@pytest.mark.drill
@pytest.mark.timeout(900)
def test_a_node_that_is_cut_off_stops_before_its_job_starts_elsewhere(
    request: pytest.FixtureRequest, tmp_path: Path, drill: Drill
) -> None:
    seed = fresh_seed()
    what = f"cut a node off for two leases, then heal it; leases × {SCALE:g}"
    detection, recovery = 50 * SCALE + STOP_SECONDS, 75 * SCALE + LAUNCH_SECONDS
    chance = drill.begin("F15", what, seed=seed, detection=detection, recovery=recovery)
    urls: Urls = request.getfixturevalue("postgres_urls")
    with ExitStack() as stack:
        plane = stack.enter_context(
            running_plane(tmp_path, urls, scale=SCALE, devices=2, launcher=REAL_LAUNCHER)
        )
        links = [
            stack.enter_context(Link(to_postgres(urls[0]))),
            stack.enter_context(Link(to_unix(_socket(plane)))),
        ]
        distant = through(links[0], urls[0])
        cut = Node(
            tmp_path,
            plane.database,
            (distant, distant),
            f"redis://127.0.0.1:{links[1].port}",
            scale=SCALE,
            name="cut",
        )
        stack.callback(cut.close)
        cut.start(launcher=REAL_LAUNCHER, LOCKSTEP_CPU_SLOTS="2")
        (tmp_path / "beats.py").write_text(BEATS)
        for number in range(PARTITIONS):
            _cut_and_heal(
                plane, cut, links, drill, tmp_path / str(number), late=chance.random() < 0.5
            )


def _cut_and_heal(
    plane: Plane, cut: Node, links: list[Link], drill: Drill, folder: Path, *, late: bool
) -> None:
    folder.mkdir()
    beats, enough = folder / "beats", folder / "enough"
    command = [str(plane.folder / "beats.py"), str(beats), str(enough)]
    with plane.client() as client:
        # It may have been quarantined for the time before, and the other must not get the job.
        client.resume_node("cut")
        client.drain_node(plane.node.name)
        job = client.submit({**script("", name=folder.name), "script": {"command": command}}).id
        until(lambda: len(_beats(beats)[1]) > 20, PATIENCE_SECONDS, "the job runs")
        client.resume_node(plane.node.name)

        for link in links:
            link.cut()
        cut_at = boottime()
        drill.injected += 1
        second = until(lambda: _beats(beats)[2], PATIENCE_SECONDS, "the job runs elsewhere")
        first = _beats(beats)[1]
        old = _assignments(plane, job)[0]
        stored = _points(plane, job)[1]
        drill.detections.append(max(0.0, first[-1] - cut_at))
        drill.recoveries.append(second[0] - cut_at)
        _sleep_until(cut_at + 2 * cut.timings.lease_seconds)
        for link in links:
            link.heal(late=late)

        until(
            lambda: _assignments(plane, job)[0].state.value == "released",
            PATIENCE_SECONDS,
            "the old part released",
        )
        drill.orphans += len(started_in(cut.dir / old.id, ProcessSnapshot.take()))
        assert not (cut.dir / old.id).exists()
        enough.touch()
        assert plane.all_end({job}) == {job: "succeeded"}
        kinds = [event.kind for event in client.events(job)]
    beaten, points = _beats(beats), _points(plane, job)
    assert beaten[1] == first, "the old side went on after the new one had started"
    assert first[-1] < second[0]
    assert plane.attempts()[job] == 2
    assert [kinds.count(kind) for kind in ("placed", "requeued", "succeeded")] == [2, 1, 1], kinds
    # Of the first attempt exactly the data from before the cut; of the second one all data.
    assert points[1] == stored == list(range(1, len(stored) + 1)), (
        "a write of the old side was accepted"
    )
    drill.lost += len(set(range(1, len(beaten[2]) + 1)) - set(points[2]))
    drill.doubled += len(points[2]) - len(set(points[2]))
    print(
        f"{'late' if late else 'lost'}: stopped {drill.detections[-1]:.2f} s, runs again "
        f"{drill.recoveries[-1]:.2f} s"
    )


# -- F17
# --------------------------------------------------------------------------------------------------


@pytest.mark.drill
@pytest.mark.timeout(900)
def test_a_wrong_clock_of_a_node_changes_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, drill: Drill
) -> None:
    what = f"clocks of two nodes an hour off, which then jump by two; leases × {SCALE:g}"
    drill.begin("F17", what, recovery=75 * SCALE + LAUNCH_SECONDS)
    urls: Urls = request.getfixturevalue("postgres_urls")
    with running_plane(tmp_path, urls, scale=SCALE, devices=1) as plane, ExitStack() as stack:
        clocks = {
            name: Clock(tmp_path / name, hours) for name, hours in zip(NAMES, (1, -1), strict=True)
        }
        nodes = {}
        for name, clock in clocks.items():
            nodes[name] = Node(
                tmp_path, plane.database, urls, plane.broker.url, scale=SCALE, name=name
            )
            stack.callback(nodes[name].close)
            nodes[name].start(LOCKSTEP_CPU_SLOTS="1", LD_PRELOAD=str(clock.library))
        with plane.client() as client:
            client.drain_node(plane.node.name)
            enough = tmp_path / "enough"
            source = COUNT_UNTIL_ENOUGH.format(enough=str(enough))
            jobs = {
                client.submit(script(source, name=f"j{number}")).id for number in range(len(NAMES))
            }
            until(lambda: _running(plane) == jobs, PATIENCE_SECONDS, "both jobs run")
            drill.injected += 2
            _live_through(plane, jobs, 2 * nodes["ahead"].timings.lease_seconds)
            for clock, hours in zip(clocks.values(), (-1, 1), strict=True):
                clock.shift(hours)
            drill.injected += 2
            _live_through(plane, jobs, 2 * nodes["ahead"].timings.lease_seconds)
            enough.touch()
            assert plane.all_end(jobs) == dict.fromkeys(jobs, "succeeded")
            for job in jobs:
                view = client.job(job)
                assert view.finished_at is not None
                assert view.started_at is not None
                assert 0 < (view.finished_at - view.started_at).total_seconds() < HOUR / 2
                points = _points(plane, job)[1]
                drill.lost += points[-1] - len(set(points))
                drill.doubled += len(points) - len(set(points))
        _ends_in_time(plane, drill)
        _is_placed_elsewhere_in_time(plane, nodes, drill)


def _live_through(plane: Plane, jobs: set[str], seconds: float) -> None:
    """Check that no job is lost or restarted in this time."""
    ends_at = boottime() + seconds
    while boottime() < ends_at:
        assert _running(plane) == jobs
        time.sleep(0.2)
    assert plane.attempts() == dict.fromkeys(jobs, 1)


def _ends_in_time(plane: Plane, drill: Drill) -> None:
    """Check that a timeout is counted by the database, without an extra or missing hour."""
    with plane.client() as client:
        begun = boottime()
        job = client.submit(script("ranks(); event('running'); until_told()", timeout_seconds=5)).id
        assert plane.all_end({job}) == {job: "failed"}
        outcome = client.job(job).outcome
    assert outcome is not None
    assert outcome.reason.value == "timed_out"
    assert 5 <= boottime() - begun <= 5 + LAUNCH_SECONDS
    drill.injected += 1


def _is_placed_elsewhere_in_time(plane: Plane, nodes: dict[str, Node], drill: Drill) -> None:
    """Check that the node with the fast clock is lost neither earlier nor later than any other."""
    with plane.client() as client:
        client.drain_node("behind")
        job = client.submit(script("ranks(); event('running'); until_told()")).id
        until(lambda: _running(plane) == {job}, PATIENCE_SECONDS, "the job runs")
        client.resume_node("behind")
        nodes["ahead"].close()
        died = boottime()
        drill.injected += 1
        until(
            lambda: plane.attempts()[job] == 2 and _running(plane) == {job},
            PATIENCE_SECONDS,
            "it runs elsewhere",
        )
        drill.recoveries.append(boottime() - died)
        placed = [(row.node_name, row.created_at) for row in _assignments(plane, job)]
        assert [name for name, _at in placed] == ["ahead", "behind"]
        client.cancel(job)
        assert plane.all_end({job}) == {job: "cancelled"}
    assert drill.recoveries[-1] > (
        nodes["ahead"].timings.lease_seconds - nodes["ahead"].timings.heartbeat_seconds
    )


class Clock:
    """Clock of one node, off by some hours."""

    def __init__(self, folder: Path, hours: float) -> None:
        folder.mkdir(exist_ok=True)
        self._file = folder / "shift"
        self.library = folder / "node_clock.so"
        self._file.write_bytes(bytes(8))
        self.shift(hours)
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("NOT RUN: no C compiler, with which the clock of a node is shifted")
        source = Path(__file__).with_name("node_clock.c")
        shift = f'-DSHIFT_FILE="{self._file}"'
        subprocess.run(
            [compiler, "-O1", "-shared", "-fPIC", shift, "-o", self.library, source], check=True
        )

    def shift(self, hours: float) -> None:
        """Set the clock in operation: processes have the file mapped."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("q", int(hours * HOUR)))


# -- reads
# --------------------------------------------------------------------------------------------------


def _socket(plane: Plane) -> str:
    return str(plane.broker.socket)


def _beats(file: Path) -> dict[int, list[float]]:
    """Return the times at which the ranks of each attempt were alive (boottime)."""
    found: dict[int, list[float]] = defaultdict(list)
    for line in file.read_text().splitlines() if file.exists() else ():
        attempt, at = line.split()
        found[int(attempt)].append(float(at))
    return found


def _assignments(plane: Plane, job: str) -> list[AssignmentRow]:
    with plane.database.read_jobs() as session:
        return list(session.query(AssignmentRow).filter_by(job_id=job).order_by(AssignmentRow.id))


def _points(plane: Plane, job: str) -> dict[int, list[int]]:
    """Return the stored steps of each attempt, in their order."""
    with plane.database.read_series() as session:
        found = series_query.read(
            session, job, names=["loss"], attempts="all", max_points=POINTS_MAX
        )
        return {view.attempt: view.step for view in found}


def _running(plane: Plane) -> set[str]:
    return {job for job, state in plane.states().items() if state == "running"}


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - boottime()))
