"""Recognition of a PostgreSQL database whose restore is not complete.

``pg_restore`` and ``psql`` create the tables, load one after the other, and add the keys last.
Until then a table may be empty while others are loaded, and an absent row means nothing. A database
is whole once it has every key and foreign key of this program's tables: a key is added after the
data of its table, whatever the order of the tables and the number of workers.

SQLite needs no check: each of its ways to restore is one transaction or one rename.

Not here: the moments at which transactions check this (``storage.db.database``).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final

from sqlalchemy import (
    Connection,
    ForeignKeyConstraint,
    MetaData,
    PrimaryKeyConstraint,
    UniqueConstraint,
    text,
)

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.storage.db import file_tables, listing_tables, people_tables
from lockstep.storage.db.series_tables import SeriesBase

_MODULES: Final = (people_tables.UserRow, file_tables.KeptFileRow, listing_tables.JobLabelRow)
METADATA: Final = {"jobs": _MODULES[0].metadata, "series": SeriesBase.metadata}
"""All tables of each database: each module that defines some is imported above."""
_KEYS: Final = (PrimaryKeyConstraint, UniqueConstraint, ForeignKeyConstraint)
_FOUND: Final = text(
    "WITH path AS (SELECT oid FROM pg_namespace WHERE nspname = ANY(current_schemas(false)))"
    " SELECT (SELECT count(DISTINCT conname) FROM pg_constraint"
    " WHERE conname = ANY(string_to_array(:names, ' ')) AND connamespace IN (TABLE path))"
    " + (SELECT count(DISTINCT relname) FROM pg_class"
    " WHERE relname = ANY(string_to_array(:indexes, ' ')) AND relnamespace IN (TABLE path))"
)
_MAY_READ: Final = text("SELECT has_function_privilege('pg_control_system()', 'EXECUTE')")
_SERVER: Final = text("SELECT CAST(system_identifier AS text) FROM pg_control_system()")


class NotWholeError(LockstepError):
    """A database is empty or partly restored.

    Its absent rows mean nothing, and no program writes to it.

    Parameters
    ----------
    which : str
        ``jobs`` or ``series``.
    same_server : bool
        True if the server is the one that had the whole database before. Then every other program
        finds the database incomplete as well.
    """

    def __init__(self, which: str, *, same_server: bool = False) -> None:
        super().__init__(
            ErrorCode.UNAVAILABLE,
            f"the {which} database is not whole: tables or keys are missing",
            next_step=(
                "If a backup is being restored, wait for its end. Otherwise restore one, or create "
                "the tables with: lockstep migrate"
            ),
        )
        self.same_server = same_server


def is_whole(connection: Connection, which: str) -> bool:
    """Return whether a database has all keys of this program's tables.

    After a statement of the same transaction the answer is valid for that statement too: the
    statement's lock on its tables keeps keys from being added or removed in between.
    """
    names, indexes = _expected(which)
    # One text each: the driver would convert a list name by name, in each transaction.
    values = {"names": " ".join(names), "indexes": " ".join(indexes)}
    found: int = connection.execute(_FOUND, values).scalar_one()
    return found == len(names) + len(indexes)


def server_of(connection: Connection) -> str | None:
    """Return the id that a server has from its creation; None if this user may not read it."""
    if not connection.execute(_MAY_READ).scalar():
        return None
    return str(connection.execute(_SERVER).scalar_one())


@cache
def _expected(which: str) -> tuple[list[str], list[str]]:
    """Names of the constraints, and of the unique indexes that are none."""
    metadata = METADATA[which]
    return sorted(_constraints(metadata)), sorted(_unique_indexes(metadata))


def _constraints(metadata: MetaData) -> Iterable[str]:
    for table in metadata.tables.values():
        for constraint in table.constraints:
            if isinstance(constraint, _KEYS):
                yield str(constraint.name)


def _unique_indexes(metadata: MetaData) -> Iterable[str]:
    for table in metadata.tables.values():
        for index in table.indexes:
            if index.unique:
                yield str(index.name)
