"""Nodes for tests: one per module, on both databases, and others for a single test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.storage.db.migrate import upgrade
from tests.harness.databases import Urls
from tests.harness.node import SLOW, Node, node_on


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
    with node_on(folder, shared_urls) as made:
        made.start()
        yield made


@pytest.fixture
def own_node(tmp_path: Path, sqlite_urls: Urls) -> Iterator[Node]:
    """Return a node for a test that starts and kills its agent itself."""
    with node_on(tmp_path, sqlite_urls) as made:
        yield made


@pytest.fixture(scope="module")
def _restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("restarted")
    urls = (f"sqlite:///{folder}/jobs.db", f"sqlite:///{folder}/series.db")
    upgrade(*urls)
    with node_on(folder, urls, scale=SLOW) as made:
        yield made


@pytest.fixture
def mortal(_restarted: Node) -> Node:
    """Return a node whose agent may be killed and started again.

    It runs at the start of a test, and its timings are slow enough for that.
    """
    if not _restarted.runs:
        _restarted.start()
    return _restarted
