"""A jobs database that became read-only: a failed-over server, or a disk after an error.

Not here: a full disk (``test_faults``), and a store that cannot be written (``test_readiness``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url, text

from lockstep.storage.db.database import Database
from tests.api.conftest import Api, problem, serving_on
from tests.harness import disks
from tests.harness.databases import Urls, copied
from tests.harness.postgres import PostgresServer

MESSAGE = "the jobs database is read-only; nothing was written"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return the folder of a small ext4 file system in a file."""
    with disks.ext4_disk(tmp_path / "disk", mebibytes=64) as folder:
        yield folder


def not_ready(api: Api) -> None:
    answer = api.http.get("/readyz")
    assert answer.status_code == 503, answer.text
    assert answer.json()["checks"]["database"] == MESSAGE
    assert api.http.get("/v1/jobs").status_code == 200


def served(urls: Urls, store: Path, stop_writes: Callable[[Database], None]) -> dict[str, Any]:
    """Check the answers of an api whose database stops to accept writes.

    Return the refusal of a submit.
    """
    database = Database(*urls)
    try:
        with serving_on(database, urls, store) as api:
            api.job_id()
            database.ping()  # A service has connections to both files.
            stop_writes(database)
            not_ready(api)
            return problem(api.submit(), 503, "unavailable")
    finally:
        database.close()


def test_a_server_that_became_a_standby_is_not_ready(
    postgres_server: PostgresServer, postgres_urls: Urls, tmp_path: Path
) -> None:
    name = make_url(postgres_urls[0]).database

    def stop_writes(database: Database) -> None:
        with database.jobs() as session:
            statement = f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'
            session.execute(text(statement))
        database.close()  # The setting is of new sessions.

    assert served(postgres_urls, tmp_path / "store", stop_writes)["detail"] == MESSAGE


def test_a_disk_that_became_read_only_is_not_ready(
    disk: Path, sqlite_template: Path, tmp_path: Path
) -> None:
    def stop_writes(_database: Database) -> None:
        disks.abort(disk)

    refusal = served(copied(sqlite_template, disk), tmp_path / "store", stop_writes)
    assert refusal["detail"] in {MESSAGE, "the disk of the jobs database fails: disk I/O error"}
