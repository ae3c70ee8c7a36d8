"""The service without its processes, on both databases."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.harness.databases import Urls, copied
from tests.harness.life.in_process import Service


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """Disable logs: tens of thousands of requests and cycles would take a tenth of the time."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


@pytest.fixture
def service(database_urls: Urls, tmp_path: Path) -> Iterator[Service]:
    opened = Service(database_urls, tmp_path / "store")
    yield opened
    opened.close()


@pytest.fixture
def sqlite_service(sqlite_urls: Urls, tmp_path: Path) -> Iterator[Service]:
    opened = Service(sqlite_urls, tmp_path / "store")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def migrated_urls(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Urls:
    """Return a migrated pair of SQLite files for a whole module."""
    return copied(sqlite_template, tmp_path_factory.mktemp("databases"))
