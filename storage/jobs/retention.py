"""Retention of points, lines and kept files for some days after a job's end, if requested.

A job without such a request has no row, and its data is kept until the job is deleted. A row is
deleted after its data, with an event in the same transaction; an interrupted deletion continues in
the next cycle.

Not here: deleting jobs (``storage.jobs.removal``), and checkpoints that a job does not keep
(``domain.life.retention``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, cast

from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import Session

from lockstep.domain.life.lifecycle import TERMINAL
from lockstep.domain.spec.job import Retention
from lockstep.storage.attempts import events, kept_files
from lockstep.storage.db import clock
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.database import Database
from lockstep.storage.db.dialects import changed, write
from lockstep.storage.db.series_tables import LogChunkRow, SeriesChunkRow, SeriesLatestRow
from lockstep.storage.db.tables import JobRow, RetentionRow
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
    asked = {
        "metrics": retention.metrics_days,
        "logs": retention.logs_days,
        "files": retention.files_days,
    }
    rows = [
        {"job_id": job_id, "what": what, "days": days}
        for what, days in asked.items()
        if days is not None
    ]
    if rows:
        session.execute(insert(RetentionRow), rows)


def due(session: Session, *whats: What) -> list[DueDeletion]:
    """Return data of these kinds with expired retention.

    The streams are sealed: a lost node cannot append to them.
    """
    statement = (
        select(RetentionRow.job_id, RetentionRow.what, RetentionRow.days)
        .join(JobRow, JobRow.id == RetentionRow.job_id)
        .where(
            RetentionRow.what.in_(whats),
            JobRow.state.in_(TERMINAL),
            JobRow.finished_at + RetentionRow.days * DAY_SECONDS <= db_now(),
        )
        .order_by(RetentionRow.job_id, RetentionRow.what)
        .limit(DUE_MAX)
    )
    return [
        DueDeletion(row.job_id, cast("What", row.what), row.days)
        for row in session.execute(statement)
    ]


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
        return _note_deletion(session, due)


def expire_files(database: Database, blobs: BlobStore, due: DueDeletion) -> bool:
    """Delete kept files, and add the job's event. Return as :func:`expire`.

    May wait for the store.

    Raises
    ------
    Exception
        From the store's library, if the store does not answer.
    """
    blobs.delete_tree(f"{FILES}/{due.job_id}")
    with database.jobs() as session:
        kept_files.remove_all(session, due.job_id)
        return _note_deletion(session, due)


def _note_deletion(session: Session, due: DueDeletion) -> bool:
    done = RetentionRow.job_id == due.job_id, RetentionRow.what == due.what
    if changed(session, delete(RetentionRow).where(*done)) == 0:
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
