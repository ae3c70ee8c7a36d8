"""Place of a database: a text that differs once a backup was restored into it.

PostgreSQL numbers databases and tables, and no restore of a dump keeps the numbers. SQLite's file
has an inode, and a version of the schema that an online restore increments. A place is stored in
the database itself, so a restored one names the place of its backup.

A copy of a file that is written over the live one keeps both numbers. The time since the last cycle
shows it (``scheduler.reconcile``), and to :class:`PlaceReader` an end of that cycle that went back.

Not here: the comparison (``storage.control.scheduler_lease``), entity tags (``api.http.places``).
"""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import Final

import structlog
from sqlalchemy import Connection, select, text

from lockstep.storage.db.database import Database
from lockstep.storage.db.series_tables import StreamRow
from lockstep.storage.db.tables import SchedulerLeaseRow
from lockstep.storage.db.whole import server_of

log = structlog.get_logger(__name__)

_NUMBERS: Final = text(
    "SELECT (SELECT oid FROM pg_database WHERE datname = current_database()) || '/'"
    " || CAST(:of_table AS regclass)::oid"
)
_STARTED: Final = text("SELECT CAST(EXTRACT(EPOCH FROM pg_postmaster_start_time()) AS text)")
_FINISHED: Final = select(SchedulerLeaseRow.finished_at)


class PlaceReader:
    """Place of both databases together, for a program that only reads. Not thread-safe.

    All processes over PostgreSQL read the same one, with the start of the server: a volume may have
    been restored while it was stopped. Each process over a SQLite file has its own, because a copy
    over the file of a stopped service keeps both numbers. It also differs once the end of the last
    cycle went back.
    """

    def __init__(self, database: Database):
        self._database = database
        self._process = secrets.token_hex(4)
        self._finished_at = 0.0
        self._set_back = 0
        self._known = {"jobs": "", "series": ""}
        self._unread: set[str] = set()

    def read(self) -> str:
        """Return a digest of the place. A database that cannot be read keeps its last place."""
        for name, read in (("jobs", self._of_jobs), ("series", self._of_series)):
            try:
                self._known[name] = read()
                self._unread.discard(name)
            except Exception as error:  # noqa: BLE001 - the request itself says what is wrong
                if name not in self._unread:
                    log.warning(
                        "the place of a database cannot be read", database=name, error=repr(error)
                    )
                self._unread.add(name)
        return hashlib.blake2b(" ".join(self._known.values()).encode(), digest_size=6).hexdigest()

    def _of_jobs(self) -> str:
        with self._database.look_jobs() as look:
            found = self._of(look, SchedulerLeaseRow.__tablename__)
            if look.dialect.name == "sqlite":
                finished_at = look.execute(_FINISHED).scalar_one_or_none() or 0.0
                self._set_back += finished_at < self._finished_at
                self._finished_at = finished_at
        return f"{found} {self._set_back}"

    def _of_series(self) -> str:
        with self._database.look_series() as look:
            return self._of(look, StreamRow.__tablename__)

    def _of(self, look: Connection, of_table: str) -> str:
        found = place_and_start(look, of_table)
        return f"{found} {self._process}" if look.dialect.name == "sqlite" else found


def place_and_start(connection: Connection, of_table: str = SchedulerLeaseRow.__tablename__) -> str:
    """Return the place of a database, on PostgreSQL with the start of its server.

    A volume may have been restored while the server was stopped.
    """
    place = place_of(connection, of_table)
    if connection.dialect.name == "sqlite":
        return place
    return f"{place} {connection.execute(_STARTED).scalar_one()}"


def place_of(connection: Connection, of_table: str = SchedulerLeaseRow.__tablename__) -> str:
    """Return the place of the database with this table, of the jobs database if none is given."""
    if connection.dialect.name == "sqlite":
        file = Path(str(connection.engine.url.database))
        version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
        return f"{file.stat().st_ino}/{version}"
    # Without the right to read it, the numbers differ in all likelihood.
    numbers = connection.execute(_NUMBERS, {"of_table": of_table}).scalar_one()
    return f"{server_of(connection) or ''}/{numbers}"
