"""A database that fails on request: at its n-th call, in one of six ways.

The faults are at the driver: the service gets the exception of the driver, and the connection has
the resulting state. On PostgreSQL the server itself raises the errors, and a lost connection is a
closed socket.

A *call* is a statement or a commit. Each has a number, counted from 0 over all connections.

Not here: the selection of the faults (``tests.harness.faults.story``).
"""

from __future__ import annotations

import os
import random
import socket
import sqlite3
import sys
from collections.abc import Callable
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg
from sqlalchemy import Engine, event

ROOT: Final = Path(__file__).parents[3]
PROGRAMS: Final = ("api", "scheduler", "worker")
_BUSY: Final = "database is locked"


class Fault(StrEnum):
    """Kind of fault of a call."""

    ERROR = "error before the statement"
    TIMEOUT = "timeout"
    DEADLOCK = "deadlock"
    DISCONNECT = "disconnect"
    BEFORE_COMMIT = "error before the commit"
    AFTER_COMMIT = "error after the commit"


OF_STATEMENTS: Final = (Fault.ERROR, Fault.TIMEOUT, Fault.DEADLOCK, Fault.DISCONNECT)
OF_COMMITS: Final = (Fault.BEFORE_COMMIT, Fault.AFTER_COMMIT, Fault.DISCONNECT)


class Call(NamedTuple):
    """One call to a database."""

    commit: bool
    site: str
    """Caller: ``module.function`` of the program, without ``lockstep.``."""


def ways_of(call: Call) -> tuple[Fault, ...]:
    """Return the possible kinds of fault of a call."""
    return OF_COMMITS if call.commit else OF_STATEMENTS


class FaultyDatabase:
    """Counter of calls while it is ``watching``, which makes one or some of them fail.

    Pass ``rule`` to the code that opens engines.
    """

    def __init__(self) -> None:
        self.watching = False
        self.calls: list[Call] = []
        self.injected: list[tuple[Call, Fault]] = []
        self._choose: Callable[[int, Call], Fault | None] = lambda _number, _call: None

    def fail_at(self, number: int, fault: Fault) -> None:
        """Let only the call of this number fail, or the next one that can fail in this way."""

        def choose(at: int, call: Call) -> Fault | None:
            return fault if at >= number and not self.injected and fault in ways_of(call) else None

        self._begin(choose)

    def fail_often(
        self, rate: float, faults: tuple[Fault, ...], chance: random.Random, *, most: int
    ) -> None:
        """Let calls fail at random, in one of these ways if possible, up to a total number."""

        def choose(_number: int, call: Call) -> Fault | None:
            possible = [fault for fault in faults if fault in ways_of(call)]
            if not possible or len(self.injected) >= most or chance.random() >= rate:
                return None
            return chance.choice(possible)

        self._begin(choose)

    def fail_never(self) -> None:
        self._begin(lambda _number, _call: None)

    def _begin(self, choose: Callable[[int, Call], Fault | None]) -> None:
        self.watching, self.calls, self.injected, self._choose = True, [], [], choose

    def rule(self, engine: Engine) -> None:
        """Route this engine's calls through this object."""

        def statement(cursor: Any, *_more: Any) -> None:
            fault = self._due(commit=False)
            if fault is not None:
                raise_as_driver(cursor.connection, fault)

        for name in ("do_execute", "do_executemany", "do_execute_no_params"):
            event.listen(engine, name, statement)
        dialect: Any = engine.dialect
        real_commit = dialect.do_commit

        def commit(connection: Any) -> None:
            fault = self._due(commit=True)
            if fault is Fault.AFTER_COMMIT:
                real_commit(connection)
            if fault is not None:
                raise_as_driver(connection, fault)
            real_commit(connection)

        dialect.do_commit = commit

    def _due(self, *, commit: bool) -> Fault | None:
        if not self.watching:
            return None
        call = Call(commit, asking())
        number = len(self.calls)
        self.calls.append(call)
        fault = self._choose(number, call)
        if fault is not None:
            self.injected.append((call, fault))
        return fault


def asking() -> str:
    """Return the innermost function of a program that waits for this call."""
    frame = sys._getframe(1)
    while frame is not None:
        module = _module_of(frame.f_code.co_filename)
        if module is not None:
            return f"{module}.{frame.f_code.co_name}"
        frame = frame.f_back  # type: ignore[assignment]  # the outermost has none
    return ""


@cache
def _module_of(filename: str) -> str | None:
    path = Path(filename).resolve()  # The packages are links to the folders at the root.
    if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in PROGRAMS:
        return None
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def raise_as_driver(connection: Any, fault: Fault) -> None:
    """Fail as the driver of this connection does."""
    driver = getattr(
        connection, "driver_connection", connection
    )  # a commit has the pool's name, a cursor the driver's
    if isinstance(driver, sqlite3.Connection):
        _raise_as_sqlite(driver, fault)
    else:
        _raise_as_postgresql(driver, fault)
    raise AssertionError(f"{fault} raised nothing")


def _raise_as_sqlite(connection: sqlite3.Connection, fault: Fault) -> None:
    if fault is Fault.DISCONNECT:
        # A file has no connection to lose. The nearest fault is a disk that does not answer.
        connection.rollback()
        raise _sqlite_error("disk I/O error", sqlite3.SQLITE_IOERR)
    if fault in (Fault.TIMEOUT, Fault.DEADLOCK):
        raise _sqlite_error(_BUSY, sqlite3.SQLITE_BUSY)
    raise _sqlite_error("disk I/O error", sqlite3.SQLITE_IOERR)


def _sqlite_error(message: str, code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = code
    return error


def _raise_as_postgresql(connection: psycopg.Connection[Any], fault: Fault) -> None:
    if fault in (Fault.DISCONNECT, Fault.AFTER_COMMIT):
        # A lost answer is a lost connection: the server has done its part, without a confirmation.
        with socket.socket(fileno=os.dup(connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)
        connection.execute("SELECT 1")
    state = {Fault.TIMEOUT: "57014", Fault.DEADLOCK: "40P01"}.get(fault, "58030")
    connection.execute(f"DO $$ BEGIN RAISE EXCEPTION 'injected' USING ERRCODE = '{state}'; END $$")
