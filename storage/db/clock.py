"""The database's clock, as an SQL expression.

Leases are compared on one clock only, so that a node whose own clock is an hour wrong changes
nothing. Seconds since the epoch as a float: the same number on both databases, and arithmetic needs
no interval types.

Not here: clocks for waiting inside a process (each program's own).
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Double, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class db_now(FunctionElement[float]):  # noqa: N801 -- reads as the SQL function it is
    """Seconds since the epoch, now, on the database's clock.

    PostgreSQL's ``now()`` is the start of the transaction, which may have waited for a lock:
    ``clock_timestamp()`` is the moment itself. SQLite 3.40 has no ``unixepoch('subsec')``;
    ``julianday`` carries milliseconds.

    A ``FunctionElement``, because SQLAlchemy keeps the compiled text of no statement that has a
    plain ``ColumnElement`` of ours in it, and compiling takes most of the time of a short one.
    """

    type = Double()
    inherit_cache = True


@compiles(db_now, "postgresql")
def _postgresql(_element: db_now, _compiler: SQLCompiler, **_options: Any) -> str:
    return "CAST(extract(epoch from clock_timestamp()) AS DOUBLE PRECISION)"


@compiles(db_now, "sqlite")
def _sqlite(_element: db_now, _compiler: SQLCompiler, **_options: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


def now(session: Session) -> float:
    """The database's clock, read once."""
    return float(session.connection().execute(_NOW).scalar_one())


_NOW: Final = select(db_now())
