"""The few places where the two databases need different words, and the one way rows are changed.

Not here: opening them (``storage.db.database``), and the clock (``storage.db.clock``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from sqlalchemy import Boolean, CursorResult, Double, Executable, String, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import DeclarativeBase, Session
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement, GenericFunction

DAY_SECONDS = 86_400.0
R = TypeVar("R", bound=DeclarativeBase)


class least(GenericFunction[float]):  # noqa: N801 -- reads as the SQL function it is
    """The smallest of its arguments, none of which may be NULL: the databases differ there."""

    type = Double()
    inherit_cache = True


class greatest(GenericFunction[float]):  # noqa: N801 -- as above
    """The largest of its arguments, none of which may be NULL."""

    type = Double()
    inherit_cache = True


class plain(FunctionElement[str]):  # noqa: N801 -- as above
    """A text that is compared by its characters, in each database alike.

    A server otherwise orders by the rules of its language.
    """

    type = String()
    inherit_cache = True


class certain(FunctionElement[bool]):  # noqa: N801 -- as above
    """A condition that is false where a value is missing.

    SQLite turns an outer join into an inner one where it sees that a condition is not met without
    the joined row, and may then begin with that table, and read each job's documents.
    """

    type = Boolean()
    inherit_cache = True


class unindexed(FunctionElement[Any]):  # noqa: N801 -- as above
    """A column by which SQLite chooses no index: it never knows how many rows an index finds."""

    inherit_cache = True


class midnight(FunctionElement[float]):  # noqa: N801 -- as above
    """Start of the day (UTC) of a time."""

    type = Double()
    inherit_cache = True


@compiles(least, "sqlite")
def _least(element: least, compiler: SQLCompiler, **options: Any) -> str:
    return f"min{compiler.process(element.clause_expr, **options)}"


@compiles(greatest, "sqlite")
def _greatest(element: greatest, compiler: SQLCompiler, **options: Any) -> str:
    return f"max{compiler.process(element.clause_expr, **options)}"


@compiles(plain, "sqlite")
def _plain(element: plain, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.clauses, **options)


@compiles(plain, "postgresql")
def _plain_of_server(element: plain, compiler: SQLCompiler, **options: Any) -> str:
    return f'({compiler.process(element.clauses, **options)} COLLATE "C")'


@compiles(certain, "sqlite")
def _certain(element: certain, compiler: SQLCompiler, **options: Any) -> str:
    return f"coalesce({compiler.process(element.clauses, **options)}, 0)"


@compiles(certain, "postgresql")
def _certain_of_server(element: certain, compiler: SQLCompiler, **options: Any) -> str:
    return f"({compiler.process(element.clauses, **options)})"


@compiles(unindexed, "sqlite")
def _unindexed(element: unindexed, compiler: SQLCompiler, **options: Any) -> str:
    return f"+{compiler.process(element.clauses, **options)}"


@compiles(unindexed, "postgresql")
def _unindexed_of_server(element: unindexed, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.clauses, **options)


@compiles(midnight, "sqlite")
def _midnight(element: midnight, compiler: SQLCompiler, **options: Any) -> str:
    at = compiler.process(element.clauses, **options)
    return f"(CAST({at} AS INTEGER) / 86400 * 86400.0)"


@compiles(midnight, "postgresql")
def _midnight_of_server(element: midnight, compiler: SQLCompiler, **options: Any) -> str:
    at = compiler.process(element.clauses, **options)
    return f"(floor(({at}) / 86400) * 86400)"


def upsert(session: Session, row: type[DeclarativeBase]) -> sqlite.Insert | postgresql.Insert:
    """An ``INSERT`` that may be given an ``ON CONFLICT`` clause.

    Both dialects spell it the same way.
    """
    if session.get_bind().dialect.name == "sqlite":
        return sqlite.insert(row)
    return postgresql.insert(row)


def has_row_locks(session: Session) -> bool:
    """Return whether a transaction can lock rows. On SQLite, a writer locks the whole database."""
    return session.get_bind().dialect.name != "sqlite"


def write(
    session: Session, statement: Executable, values: Mapping[str, Any] | None = None
) -> CursorResult[*tuple[Any, ...]]:
    """Run an ``INSERT``, ``UPDATE`` or ``DELETE`` with values for its parameters.

    Rows already loaded in the session are not refreshed: the database decides a guarded update, and
    a reader that needs the result selects it again (``populate_existing``).
    """
    session.flush()
    # The row count of an INSERT, which shows a conflict, is kept only on request.
    result = session.execute(
        statement,
        values,
        execution_options={"synchronize_session": False, "preserve_rowcount": True},
    )
    return cast("CursorResult[*tuple[Any, ...]]", result)


def changed(
    session: Session, statement: Executable, values: Mapping[str, Any] | None = None
) -> int:
    """Run a statement and return the number of changed rows."""
    return int(write(session, statement, values).rowcount)


def table_of(row: type[DeclarativeBase]) -> Table:
    """Return the table of a row's class: statements on it bypass the session's objects."""
    return cast("Table", row.__table__)


def apart(row: type[R], values: Mapping[str, Any]) -> R:
    """Return a row with the values of all its columns that no session knows, for reading.

    Its constructor would note each value as a change, which takes as long as some statements.
    """
    found = row()
    vars(found).update(values)
    return found


def for_each(
    row: type[DeclarativeBase], make: Callable[[sqlite.Insert | postgresql.Insert], Executable]
) -> dict[str, Executable]:
    """An ``INSERT`` that is made once with its ``ON CONFLICT`` clause, for :func:`run`.

    One for each database, by its name.
    """
    table = table_of(row)
    return {
        name: make(dialect.insert(table))
        for name, dialect in (("sqlite", sqlite), ("postgresql", postgresql))
    }


def run(
    session: Session,
    statement: Executable | Mapping[str, Executable],
    values: Mapping[str, Any] | Sequence[Mapping[str, Any]],
) -> CursorResult[*tuple[Any, ...]]:
    """Run a statement that was built at import, with values for its parameters.

    For statements that run several times per attempt: building one and passing it through the
    session costs several times its execution. It must use tables, not their classes, and as with
    :func:`write` the session's objects are not refreshed. An ``INSERT`` takes values by column
    name; no other parameter may have such a name.
    """
    session.flush()
    connection = session.connection()
    if isinstance(statement, Mapping):
        statement = statement[connection.dialect.name]
    return connection.execute(statement, values)
