"""Retention of points, lines and kept files for some days after a job's end, if requested.

A job without such a request has no row, and its data is kept until the job is deleted. A row is
deleted after its data, with an event in the same transaction; an interrupted deletion continues in
the next cycle.

Not here: deleting jobs (``storage.jobs.removal``), and checkpoints that a job does not keep
(``domain.life.retention``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, cast

from sqlalchemy import Delete, Select, delete, insert, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from lockstep.domain.life.lifecycle import TERMINAL
from lockstep.domain.spec.job import Retention
from lockstep.storage.attempts import events, kept_files
from lockstep.storage.db import clock
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.database import Database
from lockstep.storage.db.dialects import changed, write
from lockstep.storage.db.file_tables import FileRetentionRow, RetentionRow
from lockstep.storage.db.series_tables import LogChunkRow, SeriesChunkRow, SeriesLatestRow
from lockstep.storage.db.tables import JobRow
from lockstep.storage.jobs import removal
from lockstep.storage.jobs.removal import delete_chunks
from lockstep.storage.logs import logs
from lockstep.storage.objects.blobs import FILES, BlobStore
from lockstep.storage.series import series

What = Literal["metrics", "logs", "files"]
DAY_SECONDS: Final = 86_400.0
DUE_MAX: Final = 100
"""Limit of one query; the others are due at the next."""
_NOUN: Final[dict[What, str]] = {"metrics": "points", "logs": "lines", "files": "kept files"}


class DueDeletion(NamedTuple):
    """Data of a job whose retention has expired."""

    job_id: str
    what: What
    days: int

    @property
    def why(self) -> str:
        """Reason of the deletion, for messages."""
        days = "a day has" if self.days == 1 else f"{self.days:,} days have"
        return f"{days} passed since the job's end (retention.{self.what}_days: {self.days})"


def note(session: Session, job_id: str, retention: Retention) -> None:
    """Store the retention of a new job."""
    asked = {"metrics": retention.metrics_days, "logs": retention.logs_days}
    rows = [
        {"job_id": job_id, "what": what, "days": days}
        for what, days in asked.items()
        if days is not None
    ]
    if rows:
        session.execute(insert(RetentionRow), rows)
    if retention.files_days is not None:
        session.add(FileRetentionRow(job_id=job_id, days=retention.files_days))


def due(session: Session) -> list[DueDeletion]:
    """Return points and lines with expired retention.

    The streams are sealed: a lost node cannot append to them.
    """
    wanted = _due(RetentionRow, RetentionRow.what).order_by(RetentionRow.what)
    return [
        DueDeletion(row.job_id, cast("What", row.what), row.days) for row in session.execute(wanted)
    ]


def due_files(session: Session) -> list[DueDeletion]:
    """Return kept files with expired retention."""
    # All: those that wait for a job that goes on with them must not hide the others.
    rows = session.execute(_due(FileRetentionRow).limit(None))
    return [DueDeletion(row.job_id, "files", row.days) for row in rows]


def _due(
    row: type[RetentionRow | FileRetentionRow], *more: InstrumentedAttribute[str]
) -> Select[*tuple[Any, ...]]:
    return (
        select(row.job_id, row.days, *more)
        .join(JobRow, JobRow.id == row.job_id)
        .where(
            JobRow.state.in_(TERMINAL),
            JobRow.finished_at + row.days * DAY_SECONDS <= db_now(),
        )
        .order_by(row.job_id)
        .limit(DUE_MAX)
    )


def expire(database: Database, due: DueDeletion, go_on: Callable[[], bool] = lambda: True) -> bool:
    """Delete points or lines, and add the job's event.

    Parameters
    ----------
    database : Database
    due : DueDeletion
    go_on : callable
        Called between two transactions; False leaves the rest to the next cycle.

    Returns
    -------
    bool
        True if this call completed the deletion.
    """
    chunk = SeriesChunkRow if due.what == "metrics" else LogChunkRow
    if not delete_chunks(database, chunk, due.job_id, go_on):
        return False
    with database.series() as session:
        if due.what == "logs":
            logs.leave_notes(session, due.job_id, due.why, now=clock.now(session))
        else:
            # A point count that falls makes clients with earlier points start again.
            mine = SeriesLatestRow.job_id == due.job_id
            write(session, update(SeriesLatestRow).where(mine).values(point_count=0))
        series.bump(session, due.job_id)
    with database.jobs() as session:
        of_kind = RetentionRow.job_id == due.job_id, RetentionRow.what == due.what
        return _note_deletion(session, due, delete(RetentionRow).where(*of_kind))


def expire_files(database: Database, blobs: BlobStore, due: DueDeletion) -> bool:
    """Delete kept files, and add the job's event. Return as :func:`expire`.

    May wait for the store. The rows go first: a job that begins from this one brings all files or
    none. While one has not ended, they stay, as for a deletion by hand.

    Raises
    ------
    Exception
        From the store's library, if the store does not answer.
    """
    with database.jobs() as session:
        removal.lock(session, due.job_id)
        if removal.has_heir(session, due.job_id):
            return False
        kept_files.remove_all(session, due.job_id)
    blobs.delete_tree(f"{FILES}/{due.job_id}")
    with database.jobs() as session:
        done = delete(FileRetentionRow).where(FileRetentionRow.job_id == due.job_id)
        return _note_deletion(session, due, done)


def _note_deletion(session: Session, due: DueDeletion, done: Delete) -> bool:
    if changed(session, done) == 0:
        return False
    events.add(
        session,
        job_id=due.job_id,
        attempt=None,
        kind="expired",
        message=f"its {_NOUN[due.what]} were deleted: {due.why}",
        actor="lockstep",
        data={"what": due.what, "days": due.days},
    )
    return True
