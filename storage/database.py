"""Opening the two databases, and the transactions that everything else runs in.

One ``Database`` per program; its threads share it. ``jobs()`` and ``series()`` give a session inside a write
transaction that is committed at the end of the block and rolled back on any exception; ``read_jobs()`` and
``read_series()`` give one that is always rolled back. A commit whose answer got lost looks like a failure to the caller,
who may try again: every write here is guarded so that the second time changes nothing.

On SQLite a write transaction is ``BEGIN IMMEDIATE``: one that starts by reading and wants to write later fails at once
with "database is locked", whatever the busy timeout says.

A transaction begins at the head of its block, not with its first statement, so that what it had to wait for can be told.

Not here: the schema (``storage.tables``), bringing it up to date (``storage.migrate``).
"""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from sqlalchemy import Connection, Engine, QueuePool, create_engine, event, make_url, text
from sqlalchemy.orm import Session

from storage.faults import translated

BUSY_SECONDS: Final = 15.0
"""How long a statement waits for another writer before it gives up."""
_ASK_AGAIN_SECONDS: Final = 0.001
POOL_SIZE: Final = 5
POOL_OVERFLOW: Final = 15
"""An api has 40 request threads; more than 20 connections of one process serve nobody faster."""
_WRITE: Final = "lockstep_write"

Waited = Callable[[str, str, float], None]
"""Takes ``jobs`` or ``series``, ``read`` or ``write``, and how many seconds it took until the transaction had begun."""


class Database:
    """The jobs database and the series database."""

    def __init__(self, jobs_url: str, series_url: str) -> None:
        self._jobs = make_engine(jobs_url, durable=True)
        # Two pools to one PostgreSQL would only double the connections.
        self._series = self._jobs if series_url == jobs_url else make_engine(series_url, durable=False)
        self._writing = {"jobs": _for_writing(self._jobs), "series": _for_writing(self._series)}
        self._reading = {"jobs": _for_reading(self._jobs), "series": _for_reading(self._series)}
        self._waited: Waited = lambda _database, _transaction, _seconds: None

    def tell_waits(self, waited: Waited) -> None:
        """Tell from now on how long each transaction waited to begin: for a connection, and for other writers."""
        self._waited = waited

    def connections(self) -> list[tuple[str, int, int]]:
        """Of each database its name, and how many connections are in use and idle here. One for both counts as ``jobs``."""
        engines = {"jobs": self._jobs} if self._series is self._jobs else {"jobs": self._jobs, "series": self._series}
        found = []
        for name, engine in engines.items():
            assert isinstance(engine.pool, QueuePool)
            found.append((name, engine.pool.checkedout(), engine.pool.checkedin()))
        return found

    @contextmanager
    def jobs(self) -> Iterator[Session]:
        """A write transaction on the jobs database."""
        with translated("jobs"), self._begun("jobs", "write", _write_transaction(self._writing["jobs"])) as session:
            yield session

    @contextmanager
    def series(self) -> Iterator[Session]:
        """A write transaction on the series database."""
        with (
            translated("series"),
            self._begun("series", "write", _write_transaction(self._writing["series"])) as session,
        ):
            yield session

    @contextmanager
    def read_jobs(self) -> Iterator[Session]:
        """A transaction on the jobs database that changes nothing."""
        with translated("jobs"), self._begun("jobs", "read", _read_transaction(self._reading["jobs"])) as session:
            yield session

    @contextmanager
    def read_series(self) -> Iterator[Session]:
        """A transaction on the series database that changes nothing."""
        with translated("series"), self._begun("series", "read", _read_transaction(self._reading["series"])) as session:
            yield session

    @contextmanager
    def _begun(self, database: str, kind: str, transaction: AbstractContextManager[Session]) -> Iterator[Session]:
        asked_at = time.monotonic()
        with transaction as session:
            session.connection()
            self._waited(database, kind, time.monotonic() - asked_at)
            yield session

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

    def close(self) -> None:
        """Close every connection. Sessions still open keep theirs until they end."""
        self._jobs.dispose()
        self._series.dispose()


def _for_writing(engine: Engine) -> Engine:
    """The engine whose transactions write, with the same connections."""
    return engine.execution_options(**{_WRITE: True})


def _for_reading(engine: Engine) -> Engine:
    """The engine whose transactions read, with the same connections.

    All statements see the database as it was at the first: what one finds, the next can open. SQLite reads so by itself. A
    transaction that only reads is never refused at this level.
    """
    snapshot = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    return engine.execution_options(**snapshot)


@contextmanager
def _write_transaction(engine: Engine) -> Iterator[Session]:
    with Session(engine, expire_on_commit=False) as session, session.begin():
        yield session


@contextmanager
def _read_transaction(engine: Engine) -> Iterator[Session]:
    with Session(engine, expire_on_commit=False) as session:
        yield session


def make_engine(url: str, *, durable: bool) -> Engine:
    """An engine with this project's settings.

    Parameters
    ----------
    url : str
    durable : bool
        Whether a commit must survive a power cut. False lets SQLite skip the sync of each commit (85 times faster for
        small ones); the file stays sound, only the last commits may be missing.
    """
    if make_url(url).get_backend_name() == "sqlite":
        return _sqlite_engine(url, durable=durable)
    return create_engine(
        url,
        pool_size=POOL_SIZE,
        max_overflow=POOL_OVERFLOW,
        pool_timeout=10,
        pool_pre_ping=True,  # a connection that died with a restarted server is replaced, not handed out
        connect_args={
            "connect_timeout": 5,
            # A server that vanished without a word is noticed in seconds, not after the kernel's quarter of an hour.
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": 10_000,
            # A transaction here never waits for anything but the server. One that is silent belongs to a program that was
            # frozen or cut off, and holds rows that others need to place its job elsewhere.
            "options": "-c lock_timeout=15s -c statement_timeout=60s -c idle_in_transaction_session_timeout=10s",
        },
    )


def _sqlite_engine(url: str, *, durable: bool) -> Engine:
    engine = create_engine(
        url,
        pool_size=POOL_SIZE,
        max_overflow=POOL_OVERFLOW,
        pool_timeout=10,
        # The pool hands a connection to one thread at a time, which is all that SQLite asks for.
        connect_args={"check_same_thread": False, "timeout": BUSY_SECONDS},
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves, below
        _switch_to_wal(connection)
        connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        connection.execute("PRAGMA foreign_keys=ON")

    turn = threading.Lock()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        if connection.get_execution_options().get(_WRITE, False):
            _begin_writing(connection, turn)
        else:
            connection.exec_driver_sql("BEGIN")

    return engine


def _begin_writing(connection: Connection, turn: threading.Lock) -> None:
    """``BEGIN IMMEDIATE``, as soon as no other connection writes; of one program only one thread asks at a time.

    SQLite itself waits for 1 ms, then for 2, 5, 10 and up to 100: between four writers the slowest hundredth waits four
    times as long as here, and one of them for half a second, because whoever has waited longest asks least often.
    """
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    deadline = time.monotonic() + BUSY_SECONDS
    driver.execute("PRAGMA busy_timeout=0")
    try:
        if turn.acquire(timeout=BUSY_SECONDS):
            try:
                while time.monotonic() < deadline:
                    try:
                        driver.execute("BEGIN IMMEDIATE")
                    except sqlite3.OperationalError as error:
                        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                            break
                        time.sleep(_ASK_AGAIN_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
                    else:
                        return
            finally:
                turn.release()
        connection.exec_driver_sql("BEGIN IMMEDIATE")  # Once more, for an error as every other statement's.
    finally:
        driver.execute(f"PRAGMA busy_timeout={int(BUSY_SECONDS * 1000)}")


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Turn on the write-ahead log. Two programs that do it to a new file at once may refuse each other without waiting."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
