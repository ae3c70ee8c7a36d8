"""Nodes for tests: one per module, and others for a single test.

An agent's statements are tested in ``tests.storage`` on both databases, and whole agents on
PostgreSQL in ``tests.faults``. Here files and processes are the subject, on SQLite.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.databases import Urls, copied
from tests.harness.node import SLOW, Node, node_on


@pytest.fixture(scope="module")
def node(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Return a running agent without a broker, because a start takes longer than most tests."""
    folder = tmp_path_factory.mktemp("node")
    with node_on(folder, copied(sqlite_template, folder)) as made:
        made.start()
        yield made


@pytest.fixture
def own_node(tmp_path: Path, sqlite_urls: Urls) -> Iterator[Node]:
    """Return a node for a test that starts and kills its agent itself."""
    with node_on(tmp_path, sqlite_urls) as made:
        yield made


@pytest.fixture(scope="module")
def _restarted(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("restarted")
    with node_on(folder, copied(sqlite_template, folder), scale=SLOW) as made:
        yield made


@pytest.fixture
def mortal(_restarted: Node) -> Node:
    """Return a node whose agent may be killed and started again.

    It runs at the start of a test, and its timings are slow enough for that.
    """
    if not _restarted.runs:
        _restarted.start()
    return _restarted
