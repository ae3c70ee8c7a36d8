"""Connections to the two databases, and their transactions.

One ``Database`` per program; its threads share it. ``jobs()`` and ``series()`` give a session
inside a write transaction that is committed at the end of the block and rolled back on any
exception; ``read_jobs()`` and ``read_series()`` give one that is always rolled back.
``look_jobs()``, ``look_series()`` and ``look_lists()`` give a connection without a transaction, for
frequent polls for changes. A commit whose answer was lost raises an error, and the caller may
retry: every write is guarded, and its repetition changes nothing.

On SQLite a write transaction is ``BEGIN IMMEDIATE``: one that reads first and writes later fails at
once with "database is locked", whatever the busy timeout.

A transaction begins at the start of its block, not with its first statement, so the wait can be
measured.

On PostgreSQL a database whose restore is not complete refuses each transaction and each such
connection, like one that does not answer (``storage.db.whole``): at the begin, at most once a
second, and at the end of each write transaction.

Not here: the schema (``storage.db.tables``), and migrations (``storage.db.migrate``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, QueuePool, text
from sqlalchemy.orm import Session

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.storage.db.driver_errors import full, translated
from lockstep.storage.db.engines import _LOOK, _WRITE, CONNECTIONS_KEPT, identity, make_engine
from lockstep.storage.db.room import Room
from lockstep.storage.db.whole import NotWholeError, is_whole, server_of

_ATTACHED: Final = "lockstep_attached"
WHOLE_SECONDS: Final = 1.0
"""A database that was whole is checked again after so long, before a transaction."""

Waited = Callable[[str, str, float], None]
"""Takes ``jobs`` or ``series``, ``read`` or ``write``, and how many seconds it took until the
transaction had begun."""


class Database:
    """The jobs database and the series database.

    Parameters
    ----------
    jobs_url, series_url : str
    kept : int
        Idle connections that stay open, at most. With many occasional users, opening a connection
        costs more than its use.
    """

    def __init__(self, jobs_url: str, series_url: str, *, kept: int = CONNECTIONS_KEPT) -> None:
        self._jobs = make_engine(jobs_url, durable=True, kept=kept)
        # Two pools to one PostgreSQL would only double the connections.
        self._series = (
            self._jobs
            if series_url == jobs_url
            else make_engine(series_url, durable=False, kept=kept)
        )
        # A list joins the tables of both databases. SQLite can do it on connections of its own: a
        # write transaction locks each file of its connection.
        self._lists = (
            make_engine(jobs_url, durable=True, kept=kept)
            if {self._jobs.dialect.name, self._series.dialect.name} == {"sqlite"}
            else self._jobs
        )
        self._writing = {"jobs": _for_writing(self._jobs), "series": _for_writing(self._series)}
        self._reading = {"jobs": _for_reading(self._jobs), "series": _for_reading(self._series)}
        self._looking = {
            "jobs": _for_looking(self._jobs),
            "series": _for_looking(self._series),
            "lists": _for_looking(self._lists),
        }
        self._room = Room(self._jobs.url)
        self._waited: Waited = lambda _database, _transaction, _seconds: None
        self._may_be_partial = {
            name: engine.dialect.name == "postgresql"
            for name, engine in (("jobs", self._jobs), ("series", self._series))
        }
        self._whole_at = {"jobs": -math.inf, "series": -math.inf}
        self._server: dict[str, str | None] = {}
        """Of each database that was whole, the id of its server."""

    def tell_waits(self, waited: Waited) -> None:
        """Report the wait of each later transaction: for a connection and for other writers."""
        self._waited = waited

    def connections(self) -> list[tuple[str, int, int]]:
        """Of each database its name, and how many connections are in use and idle here.

        One for both counts as ``jobs``.
        """
        engines = (
            {"jobs": self._jobs}
            if self._series is self._jobs
            else {"jobs": self._jobs, "series": self._series}
        )
        found = []
        for name, engine in engines.items():
            pools = {engine.pool, self._lists.pool} if name == "jobs" else {engine.pool}
            counted = [pool for pool in pools if isinstance(pool, QueuePool)]
            in_use = sum(pool.checkedout() for pool in counted)
            found.append((name, in_use, sum(pool.checkedin() for pool in counted)))
        return found

    @contextmanager
    def jobs(self) -> Iterator[Session]:
        """A write transaction on the jobs database."""
        try:
            with self._write("jobs") as session:
                yield session
        except LockstepError as error:
            if error.code is ErrorCode.STORAGE_FULL:
                self._room.note(refused=True)
            raise
        self._room.note(refused=False)

    def series(self) -> AbstractContextManager[Session]:
        """Begin a write transaction on the series database."""
        return self._write("series")

    def read_jobs(self) -> AbstractContextManager[Session]:
        """Begin a transaction on the jobs database that changes nothing."""
        return self._read("jobs")

    def read_series(self) -> AbstractContextManager[Session]:
        """Begin a transaction on the series database that changes nothing."""
        return self._read("series")

    def look_jobs(self) -> AbstractContextManager[Connection]:
        """Return a read-only connection to the jobs database.

        Each statement reads the latest state.
        """
        return self._look("jobs")

    def look_series(self) -> AbstractContextManager[Connection]:
        """Return a read-only connection to the series database.

        Each statement reads the latest state.
        """
        return self._look("series")

    @property
    def can_join(self) -> bool:
        """True if one statement can read both databases (:meth:`look_lists`)."""
        return self._lists is not self._jobs or self._series is self._jobs

    @contextmanager
    def look_lists(self) -> Iterator[Connection]:
        """Return a read-only connection to the tables of both databases.

        Raises
        ------
        LockstepError
            ``INVALID`` if they are two PostgreSQL databases.
        """
        if not self.can_join:
            raise LockstepError(
                ErrorCode.INVALID,
                "jobs cannot be filtered or sorted by metrics and progress: the series are in "
                "another database (LOCKSTEP_SERIES_URL)",
                next_step="Filter by other fields, or keep both in one PostgreSQL database.",
            )
        with self._look("lists") as connection:
            if self._lists is not self._jobs:
                self._attach(connection)
            yield connection

    def _attach(self, connection: Connection) -> None:
        """Add the file of the series to a connection, unless it has it."""
        path = Path(self._series.url.database or "").absolute()
        if connection.info.get(_ATTACHED) == (there := identity(path)) is not None:
            return
        if there is None:
            with self.look_series():  # as each access refuses it: an empty one is not made here
                there = identity(path)
        if connection.info.pop(_ATTACHED, None) is not None:
            connection.exec_driver_sql("DETACH DATABASE series")
        connection.exec_driver_sql("ATTACH DATABASE ? AS series", (str(path),))
        connection.info[_ATTACHED] = there

    @contextmanager
    def _write(self, database: str) -> Iterator[Session]:
        with (
            translated(database),
            Session(self._writing[database], expire_on_commit=False) as session,
            session.begin(),
        ):
            self._begin(database, "write", session)
            yield session
            # Its locks make the answer valid for its statements.
            session.flush()
            self._require_whole(database, session.connection())

    @contextmanager
    def _read(self, database: str) -> Iterator[Session]:
        with (
            translated(database),
            Session(self._reading[database], expire_on_commit=False) as session,
        ):
            self._begin(database, "read", session)
            yield session

    @contextmanager
    def _look(self, database: str) -> Iterator[Connection]:
        asked_at = time.monotonic()
        with translated(database), self._looking[database].connect() as connection:
            self._waited(database, "read", time.monotonic() - asked_at)
            # Where one statement reads both on PostgreSQL, they are one database.
            self._check_whole("jobs" if database == "lists" else database, connection)
            yield connection

    def _begin(self, database: str, kind: str, session: Session) -> None:
        asked_at = time.monotonic()
        connection = session.connection()
        self._waited(database, kind, time.monotonic() - asked_at)
        self._check_whole(database, connection)

    def _check_whole(self, database: str, connection: Connection) -> None:
        if time.monotonic() - self._whole_at[database] >= WHOLE_SECONDS:
            self._require_whole(database, connection)

    def _require_whole(self, database: str, connection: Connection) -> None:
        if not self._may_be_partial[database]:
            return
        if not is_whole(connection, database):
            self._whole_at[database] = -math.inf
            known = self._server.get(database)
            same = known is not None and server_of(connection) == known
            raise NotWholeError(database, same_server=same)
        self._whole_at[database] = time.monotonic()
        if database not in self._server:
            self._server[database] = server_of(connection)

    def ping(self) -> None:
        """Ask both databases for an answer.

        Raises
        ------
        LockstepError
            ``UNAVAILABLE``, naming the one that does not answer.
        """
        for opened in (self.read_jobs, self.read_series):
            with opened() as session:
                session.execute(text("SELECT 1"))

    def require_room(self) -> None:
        """Refuse a new job while the disk of the jobs database is nearly full.

        Raises
        ------
        LockstepError
            ``STORAGE_FULL``.
        """
        self._room.require()

    def check_room(self) -> None:
        """Do as :meth:`require_room`, and also look at refusals of writes before.

        Raises
        ------
        LockstepError
            ``STORAGE_FULL``, or ``UNAVAILABLE`` for a read-only database, if a submit would be
            refused.
        """
        self._room.require()
        if self._room.is_file:
            self._room.require_writable_disk()
        else:
            with self.read_jobs() as session:
                self._room.require_writable_server(session)
        if self._room.must_try():
            with self.jobs() as session:
                self._room.attempt(session)
        if self._room.refused_lately():
            raise full("jobs")

    def close(self) -> None:
        """Close every connection. Sessions still open keep theirs until they end."""
        self._jobs.dispose()
        self._series.dispose()
        self._lists.dispose()


def _for_writing(engine: Engine) -> Engine:
    """The engine whose transactions write, with the same connections."""
    return engine.execution_options(**{_WRITE: True})


def _for_reading(engine: Engine) -> Engine:
    """Return the engine for read transactions, with the same connections.

    All statements read one snapshot. SQLite does so by default. A read-only transaction never fails
    at this isolation level.
    """
    snapshot = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    return engine.execution_options(**snapshot)


def _for_looking(engine: Engine) -> Engine:
    """The engine without transactions, with the same connections."""
    # SQLite's driver is already configured to begin no transaction by itself.
    alone = {_LOOK: True} if engine.dialect.name == "sqlite" else {"isolation_level": "AUTOCOMMIT"}
    return engine.execution_options(**alone)
