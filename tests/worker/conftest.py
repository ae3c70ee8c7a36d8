"""Nodes for tests: one per module, on both databases, and others for a single test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.storage.db.database import Database
from lockstep.storage.db.migrate import upgrade
from tests.harness.databases import Urls
from tests.harness.node import SLOW, Node


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared_urls(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Urls]:
    """Return a migrated pair of databases for a whole module."""
    if request.param == "sqlite":
        folder = tmp_path_factory.mktemp("databases")
        urls = (f"sqlite:///{folder}/jobs.db", f"sqlite:///{folder}/series.db")
        upgrade(*urls)
        yield urls
        return
    server = request.getfixturevalue("postgres_server")
    name = server.migrated()
    yield server.url(name), server.url(name)
    server.drop(name)


@pytest.fixture(scope="module")
def node(shared_urls: Urls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Return a running agent without a broker, because a start takes longer than most tests."""
    folder = tmp_path_factory.mktemp("node")
    database = Database(*shared_urls)
    made = Node(folder, database, shared_urls, f"redis+socket://{folder}/no-broker.sock")
    made.start()
    yield made
    made.close()
    database.close()


@pytest.fixture
def own_node(tmp_path: Path, sqlite_urls: Urls) -> Iterator[Node]:
    """Return a node for a test that starts and kills its agent itself."""
    database = Database(*sqlite_urls)
    made = Node(tmp_path, database, sqlite_urls, f"redis+socket://{tmp_path}/no-broker.sock")
    yield made
    made.close()
    database.close()


@pytest.fixture(scope="module")
def _restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("restarted")
    urls = (f"sqlite:///{folder}/jobs.db", f"sqlite:///{folder}/series.db")
    upgrade(*urls)
    database = Database(*urls)
    made = Node(folder, database, urls, f"redis+socket://{folder}/no-broker.sock", scale=SLOW)
    yield made
    made.close()
    database.close()


@pytest.fixture
def mortal(_restarted: Node) -> Node:
    """Return a node whose agent may be killed and started again.

    It runs at the start of a test, and its timings are slow enough for that.
    """
    if not _restarted.runs:
        _restarted.start()
    return _restarted
