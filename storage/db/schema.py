"""Comparison of the databases' schema versions with those of this program's code.

A version is the number of the newest migration. Numbers have four digits and grow, so older and
newer are comparable even if the code lacks the database's migration.

Not here: migrations (``storage.db.migrate``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from sqlalchemy import Connection, column, func, inspect, select, table

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.version import VERSION
from lockstep.storage.db.database import Database

VERSION_TABLES: Final = {"jobs": "alembic_version_jobs", "series": "alembic_version_series"}
"""Two, because both sets of tables may live in one PostgreSQL database."""
RETRY_SECONDS: Final = 1.0
"""Between two attempts to reach a database that does not answer at the start of a program."""


@dataclass(frozen=True)
class Mismatch:
    """A database whose schema is not the one of this program."""

    which: str
    """``jobs`` or ``series``."""
    found: str
    """Empty where there are no tables."""
    needed: str

    @property
    def newer(self) -> bool:
        """True when the database is the newer side."""
        return self.found > self.needed

    @property
    def message(self) -> str:
        """The two versions, in words."""
        program = f"{self.needed} of this program (Lockstep {VERSION})"
        if not self.found:
            return f"the {self.which} database has no Lockstep tables; expected schema {program}"
        return (
            f"the {self.which} database has schema {self.found}, "
            f"{'newer' if self.newer else 'older'} than {program}"
        )

    @property
    def next_step(self) -> str:
        """The side to upgrade, and how."""
        return (
            "upgrade Lockstep on this host"
            if self.newer
            else "upgrade the database with: lockstep migrate"
        )

    def error(self) -> LockstepError:
        """The refusal to work with this database."""
        return LockstepError(ErrorCode.CONFLICT, self.message, next_step=self.next_step)


@cache
def head(which: str) -> str:
    """The newest migration of this program's code."""
    folder = files("lockstep.migrations") / which / "versions"
    return max(entry.name[:4] for entry in folder.iterdir() if entry.name[:4].isdecimal())


def compare(connection: Connection, which: str) -> Mismatch | None:
    """Compare one database with the code; None where they agree."""
    versions = table(VERSION_TABLES[which], column("version_num"))
    found = ""
    if inspect(connection).has_table(versions.name):
        found = connection.execute(select(func.max(versions.c.version_num))).scalar() or ""
    return None if found == head(which) else Mismatch(which, found, head(which))


def mismatch(database: Database) -> Mismatch | None:
    """Compare both databases with the code.

    A newer one comes first, because no migration can help there.

    Raises
    ------
    LockstepError
        ``UNAVAILABLE`` when a database does not answer.
    """
    jobs, series = _of_jobs(database), _of_series(database)
    return series if jobs is None or (series is not None and series.newer) else jobs


def require(database: Database) -> None:
    """Refuse databases of another schema.

    Raises
    ------
    LockstepError
        ``CONFLICT`` when a schema is older or newer; ``UNAVAILABLE`` when a database does not
        answer.
    """
    _refuse(mismatch(database))


def require_once_up(database: Database, tell: Callable[[str], None]) -> None:
    """Refuse databases of another schema, as soon as the jobs database answers.

    A series database that does not answer then is skipped: jobs are placed, stopped and ended
    without it.

    Parameters
    ----------
    database : Database
    tell : callable
        Receives the reason of the wait, once, and of skipping the series database.

    Raises
    ------
    LockstepError
        ``CONFLICT`` if a schema is older or newer.
    """
    told = False
    while (reason := _unavailable(_of_jobs, database)) is not None:
        if not told:
            tell(reason)
        told = True
        time.sleep(RETRY_SECONDS)
    reason = _unavailable(_of_series, database)
    if reason is not None:
        tell(reason)


def _unavailable(ask: Callable[[Database], Mismatch | None], database: Database) -> str | None:
    """Refuse a database of another schema; the reason where it does not answer."""
    try:
        _refuse(ask(database))
    except LockstepError as error:
        if error.code is not ErrorCode.UNAVAILABLE:
            raise
        return error.message
    return None


def _refuse(differs: Mismatch | None) -> None:
    if differs is not None:
        raise differs.error()


def _of_jobs(database: Database) -> Mismatch | None:
    with database.look_jobs() as connection:
        return compare(connection, "jobs")


def _of_series(database: Database) -> Mismatch | None:
    with database.look_series() as connection:
        return compare(connection, "series")
