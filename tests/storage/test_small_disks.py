"""SQLite on small disks: a full folder for temporary files, and a full disk inside a savepoint."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.storage.db.database import Database
from tests.harness import disks
from tests.harness.databases import Urls, copied
from tests.harness.processes import ROOT, inherited

JOBS = 40
PLACE_ALL = f"""
import sys
from lockstep.storage.attempts import attempts
from lockstep.storage.db.database import Database
from tests.storage import scenes
database = Database(*sys.argv[1:])
scenes.add_node(database, "n1", {2 * JOBS})
waiting = [scenes.submit(database) for _ in range({JOBS})]
with database.jobs() as session:
    for number, job_id in enumerate(waiting):
        devices = (2 * number, 2 * number + 1)
        assert attempts.place(session, job_id, (("n1", devices),), lease_seconds=60)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return the folder of a file system of 8 MiB."""
    with disks.small_disk(tmp_path / "disk", "size=8m") as folder:
        yield folder


def test_jobs_are_placed_while_the_temporary_folder_is_full(
    sqlite_urls: Urls, small_disk: Path
) -> None:
    disks.fill(small_disk)
    done = subprocess.run(
        [sys.executable, "-c", PLACE_ALL, *sqlite_urls],
        env={**inherited(), "TMPDIR": str(small_disk)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_full_disk_is_named_inside_a_savepoint(sqlite_template: Path, small_disk: Path) -> None:
    database = Database(*copied(sqlite_template, small_disk))
    database.ping()
    disks.fill(small_disk)
    large = text("CREATE TABLE large AS SELECT zeroblob(30000000) AS bytes")
    with (
        pytest.raises(LockstepError) as failure,
        database.jobs() as session,
        session.begin_nested(),
    ):
        session.execute(large)
    database.close()
    assert failure.value.code is ErrorCode.STORAGE_FULL, failure.value
