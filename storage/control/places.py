"""Place of a database: a text that differs once a backup was restored into it.

PostgreSQL numbers databases and tables, and no restore of a dump keeps the numbers. SQLite's file
has an inode, and a version of the schema that an online restore increments. A place is stored in
the database itself, so a restored one names the place of its backup.

A copy of a file that is written over the live one keeps both numbers. The time since the last cycle
shows it (``scheduler.reconcile``), and to :class:`PlaceReader` that this time went back.

Not here: the comparison (``storage.control.scheduler_lease``), entity tags (``api.http.places``).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, select, text

from lockstep.storage.db.database import Database
from lockstep.storage.db.series_tables import StreamRow
from lockstep.storage.db.tables import SchedulerLeaseRow
from lockstep.storage.db.whole import server_of

_NUMBERS: Final = text(
    "SELECT (SELECT oid FROM pg_database WHERE datname = current_database()) || '/'"
    " || CAST(:of_table AS regclass)::oid"
)
_FINISHED: Final = select(SchedulerLeaseRow.finished_at)


class PlaceReader:
    """Place of both databases together, for a program that only reads. Not thread-safe."""

    def __init__(self, database: Database):
        self._database = database
        self._finished_at = 0.0
        self._set_back = 0

    def read(self) -> str:
        """Return a digest of the place.

        It also differs once the end of the last cycle went back.
        """
        with self._database.look_jobs() as look:
            jobs = place_of(look)
            finished_at = look.execute(_FINISHED).scalar_one_or_none() or 0.0
        with self._database.look_series() as look:
            series = place_of(look, StreamRow.__tablename__)
        self._set_back += finished_at < self._finished_at
        self._finished_at = finished_at
        parts = f"{jobs} {series} {self._set_back}"
        return hashlib.blake2b(parts.encode(), digest_size=6).hexdigest()


def place_of(connection: Connection, of_table: str = SchedulerLeaseRow.__tablename__) -> str:
    """Return the place of the database with this table, of the jobs database if none is given."""
    if connection.dialect.name == "sqlite":
        file = Path(str(connection.engine.url.database))
        version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
        return f"{file.stat().st_ino}/{version}"
    # Without the right to read it, the numbers differ in all likelihood.
    numbers = connection.execute(_NUMBERS, {"of_table": of_table}).scalar_one()
    return f"{server_of(connection) or ''}/{numbers}"
