"""SIGKILL during writes to SQLite: the files open clean, with all accepted data (F30)."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import time
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import make_url, select

from lockstep.storage.db.database import Database
from lockstep.storage.db.listing_tables import JobLabelRow
from lockstep.storage.db.tables import EventRow, IdempotencyKeyRow, JobRow
from lockstep.storage.series import series_query
from tests.harness.databases import Urls
from tests.harness.drills import Drill, fresh_seed, long
from tests.harness.faults.submitter import BATCH
from tests.harness.forks import Forked

SEED: Final = int(os.environ.get("LOCKSTEP_TEST_SEED", "30"))
WRITERS: Final = 2
PATIENCE_SECONDS: Final = 60.0
SUBMITTER: Final = "tests.harness.faults.submitter"
SUBMIT: Final = f"from {SUBMITTER} import main; main()"


@pytest.mark.parametrize(("times", "seed"), [(10, SEED), long(200, fresh_seed(), seconds=1200)])
def test_accepted_data_survives_sigkill(
    sqlite_urls: Urls, tmp_path: Path, drill: Drill, times: int, seed: int
) -> None:
    chance = drill.begin("F30", "SIGKILL two writers to SQLite", seed=seed)
    accepted = 0
    for kill in range(times):
        files = {
            f"w{kill}-{writer}": tmp_path / f"accepted-{kill}-{writer}" for writer in range(WRITERS)
        }
        # Forked, because an import takes longer than their lives.
        writers = [
            Forked([sys.executable, "-c", SUBMIT, *sqlite_urls, name, file], (SUBMITTER,))
            for name, file in files.items()
        ]
        wait_for_something(list(files.values()))
        time.sleep(chance.uniform(0.0, 0.2))  # the moment of death is varied
        for writer in chance.sample(writers, WRITERS):
            writer.kill()
        for writer in writers:
            assert writer.wait(PATIENCE_SECONDS) == -signal.SIGKILL
        drill.injected += 1
        check_files(sqlite_urls)
        accepted += check_accepted(sqlite_urls, files)
    print(f"{accepted} accepted jobs, all there")


def wait_for_something(files: list[Path]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not all(file.exists() and file.stat().st_size for file in files):
        assert time.monotonic() < deadline, "the writers wrote nothing"
        time.sleep(0.005)


def check_files(urls: Urls) -> None:
    """Check the files with SQLite only."""
    for url in urls:
        connection = sqlite3.connect(str(make_url(url).database))
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        connection.close()


def check_accepted(urls: Urls, files: dict[str, Path]) -> int:
    """Check that each accepted job is complete.

    This includes one whose acceptance could not be recorded. Return the number of recorded ones.
    """
    told = 0
    database = Database(*urls)
    for name, file in files.items():
        # The last line may be incomplete. Then it was not recorded.
        lines = [
            line.split()
            for line in file.read_text().splitlines(keepends=True)
            if line.endswith("\n")
        ]
        jobs = {words[1] for words in lines if words[0] == "job"}
        with database.read_jobs() as session:
            rows = set(session.scalars(select(JobRow.id).where(JobRow.name == name)))
            parts = [
                sorted(session.scalars(select(column).where(column.in_(rows))))
                for column in (EventRow.job_id, JobLabelRow.job_id, IdempotencyKeyRow.job_id)
            ]
        assert jobs <= rows
        assert len(rows - jobs) <= 1
        assert parts == [sorted(rows)] * len(parts)
        points = max((int(words[1]) for words in lines if words[0] == "points"), default=0)
        with database.read_series() as session:
            stored = sum(view.count for view in series_query.read(session, name))
        assert stored in (points, points + BATCH)
        told += len(jobs)
    database.close()
    return told
