"""The few places where the two databases need different words, and the one way rows are changed.

Not here: opening them (``storage.database``), and the clock (``storage.clock``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from sqlalchemy import CursorResult, Executable
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import DeclarativeBase, Session


def upsert(session: Session, row: type[DeclarativeBase]) -> sqlite.Insert | postgresql.Insert:
    """An ``INSERT`` that may be given an ``ON CONFLICT`` clause; both dialects spell it the same way."""
    if session.get_bind().dialect.name == "sqlite":
        return sqlite.insert(row)
    return postgresql.insert(row)


def write(
    session: Session, statement: Executable, values: Mapping[str, Any] | None = None
) -> CursorResult[*tuple[Any, ...]]:
    """Run an ``INSERT``, ``UPDATE`` or ``DELETE`` as it stands, with values for its parameters.

    Rows already loaded in the session are not brought up to date: a guarded update is decided by the database, and a
    reader that needs the result afterwards selects it anew (``populate_existing``).
    """
    session.flush()
    # An INSERT's row count, which tells whether it ran into a conflict, is not kept unless asked for.
    result = session.execute(
        statement, values, execution_options={"synchronize_session": False, "preserve_rowcount": True}
    )
    return cast("CursorResult[*tuple[Any, ...]]", result)


def changed(session: Session, statement: Executable, values: Mapping[str, Any] | None = None) -> int:
    """Run a statement and say how many rows it changed."""
    return int(write(session, statement, values).rowcount)
