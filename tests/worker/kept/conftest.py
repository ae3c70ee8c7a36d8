"""A running job on SQLite: tests/storage/test_kept_files.py has the rows on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.storage.db.database import Database
from lockstep.storage.objects.blobs import BlobStore
from tests.harness.databases import Urls
from tests.worker.kept.job import Job


@pytest.fixture
def database(sqlite_urls: Urls) -> Iterator[Database]:
    opened = Database(*sqlite_urls)
    yield opened
    opened.close()


@pytest.fixture
def job(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    made = Job(database, BlobStore(str(tmp_path / "store")), tmp_path)
    made.monkeypatch = monkeypatch
    made.rest()
    return made
