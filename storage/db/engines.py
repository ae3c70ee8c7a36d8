"""SQLAlchemy engines of both dialects: connections, timeouts, locks."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry

BUSY_SECONDS: Final = 15.0
"""Time limit of a statement's wait for another writer."""


_ASK_AGAIN_SECONDS: Final = 0.001


CONNECTIONS_MAX: Final = 20
"""The api has 40 request threads; more than 20 connections per process do not increase
throughput."""


CONNECTIONS_KEPT: Final = 5
"""Idle connections that stay open: the threads of an agent or a scheduler use this many at once,
and there may be hundreds of these programs."""


IDLE_SECONDS_MAX: Final = 1.0
"""A connection to a server that was idle for longer is asked for a sign of life before it is used:
the server may have been restarted. Asking each time would be a message more in each transaction."""


CONNECT_SECONDS_MAX: Final = 5
"""Longest wait for a connection to PostgreSQL."""
SILENT_SECONDS_MAX: Final = 10
"""PostgreSQL ends a transaction that sent nothing for so long."""


_WRITE: Final = "lockstep_write"


LOG_BYTES: Final = 1_100 * (4_096 + 24)
"""The write-ahead log of the jobs database. SQLite begins it again after about 1,000 pages."""


_LOOK: Final = "lockstep_look"


_IDLE_SINCE: Final = "lockstep_idle_since"


_FILE: Final = "lockstep_file"


_TURN: Final = "lockstep_turn"


def make_engine(url: str, *, durable: bool, kept: int = CONNECTIONS_KEPT) -> Engine:
    """Return an engine with this project's settings.

    Parameters
    ----------
    url : str
    durable : bool
        True if a commit must survive a power cut. False lets SQLite skip the sync of each commit
        (85 times faster for small ones); the file stays consistent, only the last commits may be
        missing.
    kept : int
        Idle connections that stay open, at most.
    """
    pool = {"pool_size": kept, "max_overflow": CONNECTIONS_MAX - kept, "pool_timeout": 10}
    if make_url(url).get_backend_name() == "sqlite":
        return _sqlite_engine(url, pool, durable=durable)
    return _server_engine(url, pool)


def _server_engine(url: str, pool: Mapping[str, Any]) -> Engine:
    engine = create_engine(
        url,
        **pool,
        connect_args={
            "connect_timeout": CONNECT_SECONDS_MAX,
            # A server that vanished without a word is noticed in seconds, not after the kernel's
            # quarter of an hour.
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": 10_000,
            # A transaction here never waits for anything but the server. One that is silent belongs
            # to a program that was
            # frozen or cut off, and holds rows that others need to place its job elsewhere.
            "options": "-c lock_timeout=15s -c statement_timeout=60s"
            f" -c idle_in_transaction_session_timeout={SILENT_SECONDS_MAX}s",
        },
    )

    @event.listens_for(engine, "checkin")
    def _rest(_connection: DBAPIConnection | None, record: ConnectionPoolEntry) -> None:
        record.info[_IDLE_SINCE] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def _check(connection: DBAPIConnection, record: ConnectionPoolEntry, _proxy: Any) -> None:
        # One that died with a restarted server is replaced, with all others of its age, and not
        # handed out.
        idle_since = record.info.get(_IDLE_SINCE)
        if idle_since is None or time.monotonic() - idle_since < IDLE_SECONDS_MAX:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise InvalidatePoolError from error

    return engine


def _sqlite_engine(url: str, pool: Mapping[str, Any], *, durable: bool) -> Engine:
    engine = create_engine(
        url,
        **pool,
        # The pool hands a connection to one thread at a time, which is all that SQLite asks for.
        connect_args={"check_same_thread": False, "timeout": BUSY_SECONDS},
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None  # BEGIN is sent explicitly, below
        _switch_to_wal(connection)
        connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        if durable and engine.url.database not in {None, "", ":memory:"}:
            _reserve_log(connection, Path(f"{engine.url.database}-wal"))
        connection.execute("PRAGMA foreign_keys=ON")
        # Savepoints would fail while the folder for temporary files is full.
        connection.execute("PRAGMA temp_store=MEMORY")
        # Not each build of SQLite has mathematical functions; PostgreSQL has this one.
        connection.create_function("power", 2, pow, deterministic=True)

    _follow_the_file(engine)
    turn = threading.Lock()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        if connection.get_execution_options().get(_WRITE, False):
            _begin_writing(connection, turn)
        elif not connection.get_execution_options().get(_LOOK, False):
            connection.exec_driver_sql("BEGIN")

    @event.listens_for(engine, "checkin")
    def _end(_connection: DBAPIConnection | None, record: ConnectionPoolEntry) -> None:
        if record.info.pop(_TURN, False):
            turn.release()

    return engine


def _reserve_log(connection: sqlite3.Connection, log: Path) -> None:
    """Allocate the blocks of the write-ahead log, which SQLite then fills again and again.

    Leases are renewed and jobs end in it while the disk is full. SQLite ignores what follows its
    last frame. The transaction keeps other writers from the file meanwhile.
    """
    with contextlib.suppress(OSError, sqlite3.OperationalError):  # full already, or read-only
        if log.exists() and log.stat().st_size >= LOG_BYTES:
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            descriptor = os.open(log, os.O_RDWR | os.O_CLOEXEC)
            try:
                written = os.fstat(descriptor).st_size
                if written < LOG_BYTES:
                    os.posix_fallocate(descriptor, written, LOG_BYTES - written)
            finally:
                os.close(descriptor)
        finally:
            connection.execute("ROLLBACK")


def _follow_the_file(engine: Engine) -> None:
    """Close connections to a replaced file: a backup may be restored under a running program.

    Commits on a connection to a deleted file are lost. Once this program has used the file it does
    not create it either: an empty file between a deletion and a restore would obstruct the backup.
    """
    name = engine.url.database
    if not name or name == ":memory:":
        return
    path, found = Path(name).absolute(), False

    @event.listens_for(engine, "do_connect")
    def _existing(
        _dialect: Any, record: Any, arguments: list[Any], options: dict[str, Any]
    ) -> None:
        record.info[_FILE] = identity(path)
        if found:
            arguments[0] = f"file:{quote(str(path))}?mode=rw"
            options["uri"] = True

    @event.listens_for(engine, "connect")
    def _note(_connection: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
        nonlocal found
        found = True
        if record.info.get(_FILE) != identity(path):
            # Created or replaced during the connect: the next checkout opens it again.
            record.info[_FILE] = None

    @event.listens_for(engine, "checkout")
    def _check(_connection: DBAPIConnection, record: ConnectionPoolEntry, _proxy: Any) -> None:
        if record.info.get(_FILE) != identity(path):
            raise InvalidatePoolError


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file; None if it is not there."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _begin_writing(connection: Connection, turn: threading.Lock) -> None:
    """Send ``BEGIN IMMEDIATE`` as soon as no other connection writes.

    One thread of a program writes at a time, until its connection is back in the pool. The next one
    begins at once: with a poll it would wait for a millisecond more.

    SQLite's own waits for other programs grow from 1 ms to 100 ms: with four writers the slowest
    hundredth waits four times as long as here, and one of them for half a second, because the
    oldest waiter polls least often.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    info = connection.info
    info[_TURN] = has_turn = turn.acquire(timeout=BUSY_SECONDS)
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    driver.execute("PRAGMA busy_timeout=0")
    try:
        while has_turn and time.monotonic() < deadline:
            try:
                driver.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    break
                time.sleep(_ASK_AGAIN_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
            else:
                return
        # Once more, for an error as every other statement's.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    finally:
        driver.execute(f"PRAGMA busy_timeout={int(BUSY_SECONDS * 1000)}")


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Turn on the write-ahead log.

    Two programs that do it to a new file at once may refuse each other without waiting.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
