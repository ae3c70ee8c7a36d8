"""Translation of the database driver's exceptions to readable errors.

Driver exceptions are translated only here. A violated constraint is a defect and passes unchanged.

Not here: the HTTP status of each code (``api.http.problems``).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.exc import (
    DatabaseError,
    DataError,
    DBAPIError,
    InterfaceError,
    InternalError,
    OperationalError,
    ProgrammingError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from lockstep.domain.errors import ErrorCode, LockstepError

_POSTGRES_FULL: Final = frozenset({"53100", "53000"})
"""SQLSTATE ``disk_full`` and ``insufficient_resources``."""
_POSTGRES_READ_ONLY: Final = "25006"
"""SQLSTATE ``read_only_sql_transaction``: a standby, or ``default_transaction_read_only``."""
_REFUSALS: Final = (
    (
        re.compile(r"(?:password|\w+) authentication failed for user .*|no password supplied"),
        "Correct the password in {variable} (Compose: POSTGRES_PASSWORD in .env), or give the role "
        "that password with ALTER ROLE … PASSWORD.",
    ),
    (
        re.compile(r'role ".*" (?:does not exist|is not permitted to log in)'),
        "Correct the role in {variable}, or create it with CREATE ROLE … LOGIN PASSWORD.",
    ),
    (
        re.compile(r'database ".*" does not exist'),
        "Correct the name in {variable}, or create the database with createdb -O ROLE NAME and its "
        "tables with lockstep migrate.",
    ),
    (
        re.compile(r"no pg_hba\.conf entry for .*|permission denied for database .*"),
        "Allow the connection on the server: in pg_hba.conf, or with GRANT CONNECT.",
    ),
)
"""Answers of a PostgreSQL server that waiting does not change. libpq gives no SQLSTATE before the
login, so the text decides; a server with messages in another language gets the general message."""
_POSTGRES_PARTIAL: Final = frozenset({"42P01", "42P10", "42703", "3F000"})
"""SQLSTATE ``undefined_table``, no constraint for ``ON CONFLICT``, ``undefined_column``,
``invalid_schema_name``: a restore has not created them yet, or the backup has an older schema."""
_NO_SAVEPOINT: Final = "no such savepoint"
_SQLITE_PARTIAL: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
"""A file that is being copied over, or was damaged by that."""


class ReadOnlyError(LockstepError):
    """A database that answers, and accepts no write: a standby, or a read-only disk."""

    def __init__(self, which: str) -> None:
        super().__init__(
            ErrorCode.UNAVAILABLE,
            f"the {which} database is read-only; nothing was written",
            next_step=(
                "Make its disk writable again; with PostgreSQL, name the primary server in the "
                "URL, or turn default_transaction_read_only off."
            ),
        )


@contextmanager
def translated(which: str) -> Iterator[None]:
    """Translate the driver's exceptions inside the block.

    Parameters
    ----------
    which : str
        Name of the database, for the message: ``jobs`` or ``series``.

    Raises
    ------
    LockstepError
        ``UNAVAILABLE`` if the database does not answer, stays locked, is read-only or is being
        restored,
        ``STORAGE_FULL`` if its disk is full, ``INVALID`` for a value that it cannot store
        (PostgreSQL has no NUL in text).
    """
    try:
        yield
    except (OperationalError, InternalError) as last:
        error = _first(last)
        if _is_full(error):
            raise full(which) from error
        if _is_read_only(error):
            raise ReadOnlyError(which) from error
        raise _unavailable(which, error) from error
    except InterfaceError as error:
        raise _unavailable(which, error) from error
    except ProgrammingError as error:
        if getattr(error.orig, "sqlstate", None) not in _POSTGRES_PARTIAL:
            raise
        raise _unavailable(which, error) from error
    except PoolTimeoutError as error:
        raise LockstepError(
            ErrorCode.UNAVAILABLE,
            f"all connections to the {which} database are in use",
            next_step="Try again in a few seconds.",
        ) from error
    except DataError as error:
        raise LockstepError(
            ErrorCode.INVALID,
            f"the {which} database cannot store a value of the request: {_cause(error)}",
            next_step="Remove NUL characters and numbers of more than 64 bits.",
        ) from error
    except DatabaseError as error:
        code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
        if code not in _SQLITE_PARTIAL:
            raise
        raise _unavailable(which, error) from error


def _first(error: DBAPIError) -> DBAPIError:
    """Return the error that ended the transaction.

    SQLite ends the whole transaction at some errors, a full disk for example. The rollback to a
    savepoint then fails, too, and hides it.
    """
    before: BaseException | None = error
    while _NO_SAVEPOINT in str(error.orig) and (before := before and before.__context__):
        if isinstance(before, DBAPIError):
            return before
    return error


def _is_full(error: DBAPIError) -> bool:
    original = error.orig
    if isinstance(original, sqlite3.Error):
        return getattr(original, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return getattr(original, "sqlstate", None) in _POSTGRES_FULL


def _is_read_only(error: DBAPIError) -> bool:
    original = error.orig
    if isinstance(original, sqlite3.Error):
        # Not its extended codes: one of them is a file that was replaced.
        return getattr(original, "sqlite_errorcode", None) == sqlite3.SQLITE_READONLY
    return getattr(original, "sqlstate", None) == _POSTGRES_READ_ONLY


def full(which: str) -> LockstepError:
    """Return the refusal of a write to a full disk."""
    return LockstepError(
        ErrorCode.STORAGE_FULL,
        f"the disk of the {which} database is full; nothing was written",
        next_step="Free space on the database's disk, then try again.",
    )


def _unavailable(which: str, error: DBAPIError) -> LockstepError:
    variable = f"LOCKSTEP_{'DATABASE' if which == 'jobs' else 'SERIES'}_URL"
    for pattern, next_step in _REFUSALS:
        if refusal := pattern.search(str(error.orig)):
            return LockstepError(
                ErrorCode.UNAVAILABLE,
                f"the {which} database refuses the connection: {refusal[0]}",
                next_step=next_step.format(variable=variable),
            )
    if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_IOERR:
        return LockstepError(
            ErrorCode.UNAVAILABLE,
            f"the disk of the {which} database fails: {_cause(error)}",
            next_step="Check the kernel's log, and whether the disk has become read-only.",
        )
    return LockstepError(
        ErrorCode.UNAVAILABLE,
        f"the {which} database does not answer: {_cause(error)}",
        next_step=(
            "Try again in a few seconds; if the error persists, check the log of the database."
        ),
    )


def _cause(error: DBAPIError) -> str:
    """The driver's first line: the rest of SQLAlchemy's message is the statement and its values."""
    lines = str(error.orig).strip().splitlines()
    return lines[0] if lines else type(error.orig).__name__
