"""Points and lines that a job asked to be kept for some days after its end, and no longer.

A job that asks for nothing has no row here, and what it wrote is kept until it is deleted. A row goes when what it is about
is gone, with an event in the same transaction; an interruption before that is made good by the next time.

Not here: deleting jobs (``storage.jobs.removal``), and checkpoints that a job does not keep (``domain.life.retention``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, cast

from sqlalchemy import bindparam, delete, insert, select, update
from sqlalchemy.orm import Session

from lockstep.domain.life.lifecycle import TERMINAL
from lockstep.domain.spec.job import Retention
from lockstep.storage.attempts import events
from lockstep.storage.db import clock
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.database import Database
from lockstep.storage.db.dialects import run, table_of
from lockstep.storage.db.series_tables import LogChunkRow, SeriesChunkRow, SeriesLatestRow
from lockstep.storage.db.tables import JobRow, RetentionRow
from lockstep.storage.jobs.removal import delete_chunks
from lockstep.storage.logs import logs
from lockstep.storage.series import series

What = Literal["metrics", "logs"]
DAY_SECONDS: Final = 86_400.0
DUE_MAX: Final = 100
"""Looked up at once; the others are due the next time as well."""
_NOUN: Final[dict[What, str]] = {"metrics": "points", "logs": "lines"}


class Due(NamedTuple):
    """What is to be deleted now."""

    job_id: str
    what: What
    days: int

    @property
    def why(self) -> str:
        """For people."""
        days = "a day has" if self.days == 1 else f"{self.days:,} days have"
        return f"{days} passed since the job's end (retention.{self.what}_days: {self.days})"


def note(session: Session, job_id: str, retention: Retention) -> None:
    """Remember what a new job asks for."""
    asked = {"metrics": retention.metrics_days, "logs": retention.logs_days}
    rows = [{"job_id": job_id, "what": what, "days": days} for what, days in asked.items() if days is not None]
    if rows:
        run(session, _NOTED, rows)


def due(session: Session) -> list[Due]:
    """What is to be deleted, of jobs that ended so long ago. Their streams are sealed: a node that was lost adds nothing more."""
    return [Due(row.job_id, cast("What", row.what), row.days) for row in session.execute(_DUE)]


def expire(database: Database, due: Due, go_on: Callable[[], bool] = lambda: True) -> bool:
    """Delete it and tell the job.

    Parameters
    ----------
    database : Database
    due : Due
    go_on : callable
        Asked between two transactions; False leaves the rest for the next time.

    Returns
    -------
    bool
        Whether it is done, by this call.
    """
    chunk = SeriesChunkRow if due.what == "metrics" else LogChunkRow
    if not delete_chunks(database, chunk, due.job_id, go_on):
        return False
    with database.series() as session:
        if due.what == "logs":
            logs.leave_notes(session, due.job_id, due.why, now=clock.now(session))
        else:
            run(session, _EMPTIED, {"of_job": due.job_id})
        series.bump(session, due.job_id)
    with database.jobs() as session:
        if run(session, _FORGOTTEN, {"of_job": due.job_id, "this": due.what}).rowcount == 0:
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


# --- statements

_KEPT: Final = table_of(RetentionRow)
_JOBS: Final = table_of(JobRow)
_LATEST: Final = table_of(SeriesLatestRow)
_NOTED: Final = insert(_KEPT)
_FORGOTTEN: Final = delete(_KEPT).where(_KEPT.c.job_id == bindparam("of_job"), _KEPT.c.what == bindparam("this"))
_EMPTIED: Final = update(_LATEST).where(_LATEST.c.job_id == bindparam("of_job")).values(point_count=0)
"""Whoever has points of it already is told to begin anew."""
_DUE: Final = (
    select(_KEPT.c.job_id, _KEPT.c.what, _KEPT.c.days)
    .join(_JOBS, _JOBS.c.id == _KEPT.c.job_id)
    .where(
        _JOBS.c.state.in_(TERMINAL),
        _JOBS.c.finished_at + _KEPT.c.days * DAY_SECONDS <= db_now(),
    )
    .order_by(_KEPT.c.job_id, _KEPT.c.what)
    .limit(DUE_MAX)
)
