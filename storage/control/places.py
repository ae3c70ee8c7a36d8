"""Place of the jobs database: a text that differs once a backup was restored into it.

PostgreSQL numbers databases and tables, and no restore of a dump keeps the numbers. SQLite's file
has an inode, and a version of the schema that an online restore increments. A place is stored in
the database itself, so a restored one names the place of its backup.

A copy of a file that is written over the live one keeps both numbers. The time since the last cycle
shows it (``scheduler.reconcile``).

Not here: the comparison (``storage.control.scheduler_lease``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sqlalchemy import text
from sqlalchemy.orm import Session

from lockstep.storage.db.whole import server_of

_NUMBERS: Final = text(
    "SELECT (SELECT oid FROM pg_database WHERE datname = current_database()) || '/'"
    " || CAST('scheduler_lease' AS regclass)::oid"
)


def place_of(session: Session) -> str:
    """Return the place of the jobs database."""
    connection = session.connection()
    if connection.dialect.name == "sqlite":
        file = Path(str(connection.engine.url.database))
        version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
        return f"{file.stat().st_ino}/{version}"
    # Without the right to read it, the numbers differ in all likelihood.
    return f"{server_of(connection) or ''}/{connection.execute(_NUMBERS).scalar_one()}"
