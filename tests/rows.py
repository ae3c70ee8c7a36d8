"""All rows of both databases, restored later: a backup for tests that start no program.

Not here: real backups of real databases (``tests.faults.test_restore``).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import MetaData, delete, insert, select
from sqlalchemy.orm import Session

from lockstep.storage.db.database import Database
from lockstep.storage.db.series_tables import SeriesBase
from lockstep.storage.db.tables import JobsBase

Rows = dict[str, list[dict[str, Any]]]


class Backup:
    """Copy of the rows at its creation."""

    def __init__(self, database: Database) -> None:
        self._database = database
        with database.read_jobs() as session:
            self._jobs = _rows(session, JobsBase.metadata)
        with database.read_series() as session:
            self._series = _rows(session, SeriesBase.metadata)

    def forget_all(self) -> None:
        """Replace it by a backup of empty tables."""
        self._jobs, self._series = (
            {name: [] for name in rows} for rows in (self._jobs, self._series)
        )

    def restore(self) -> None:
        """Restore both databases to these rows."""
        _put_back(self._database.jobs(), JobsBase.metadata, self._jobs)
        _put_back(self._database.series(), SeriesBase.metadata, self._series)

    def restore_series(self) -> None:
        """Restore only the series database to its rows."""
        _put_back(self._database.series(), SeriesBase.metadata, self._series)


def _rows(session: Session, metadata: MetaData) -> Rows:
    return {
        table.name: [dict(row._mapping) for row in session.execute(select(table))]
        for table in metadata.tables.values()
    }


def _put_back(transaction: AbstractContextManager[Session], metadata: MetaData, rows: Rows) -> None:
    with transaction as session:
        for table in reversed(metadata.sorted_tables):
            session.execute(delete(table))
        for table in metadata.sorted_tables:
            if rows[table.name]:
                session.execute(insert(table), rows[table.name])
