"""Nodes for tests, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import migrate
from storage.database import Database
from tests.worker.node import Node


@pytest.fixture
def urls(tmp_path: Path) -> tuple[str, str]:
    return f"sqlite:///{tmp_path}/db/jobs.db", f"sqlite:///{tmp_path}/db/series.db"


@pytest.fixture
def node(tmp_path: Path, urls: tuple[str, str]) -> Iterator[Node]:
    """A node without a broker."""
    migrate.upgrade(*urls)
    database = Database(*urls)
    made = Node(tmp_path, database, urls, f"redis+socket://{tmp_path}/no-broker.sock")
    yield made
    made.close()
    database.close()
