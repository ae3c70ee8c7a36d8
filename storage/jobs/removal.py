"""Deletion of an ended job with all its data.

The data is in three places without a common transaction: blob store, series database, jobs
database. A mark on the job's row is first, and the row is deleted last. An interrupted deletion
therefore leaves no orphans: the scheduler finishes it, or a repeated request.

Not here: checkpoints that a job itself does not keep (``storage.attempts.checkpoints.prune``), and
points and lines that it keeps for some days only (``storage.jobs.retention``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import Text, cast, delete, select, update
from sqlalchemy.orm import Session

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.lifecycle import TERMINAL, AssignmentState
from lockstep.domain.rights import Within
from lockstep.storage.attempts import ledger, lineage
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.database import Database
from lockstep.storage.db.dialects import changed, write
from lockstep.storage.db.series_tables import (
    LogChunkRow,
    LogTotalRow,
    ProgressRow,
    SeriesChunkRow,
    SeriesDefinitionRow,
    SeriesLatestRow,
    StreamOffsetRow,
    StreamRow,
)
from lockstep.storage.db.tables import AssignmentRow, IdempotencyKeyRow, JobRow
from lockstep.storage.jobs import settings
from lockstep.storage.objects.blobs import FILES, BlobStore

CHUNKS_AT_ONCE: Final = 500
"""In one transaction: the points of jobs that run must get in between."""
ABANDONED_SECONDS: Final = 300.0
"""After the mark, a deletion is taken for interrupted. Two at once do no harm."""


def mark(session: Session, job_id: str, *, among: Within) -> bool:
    """Mark a job as being deleted; False if it is marked or deleted already.

    From then on no new job begins from it, so its data may go before its row. A refusal names no
    job outside of ``among``.

    Raises
    ------
    LockstepError
        ``CONFLICT`` if it has not ended, a node has not removed its files yet, or a waiting or
        running job starts from one of its checkpoints.
    """
    lock(session, job_id)
    check(session, job_id, among=among)
    unmarked = update(JobRow).where(JobRow.id == job_id, JobRow.deleting_at.is_(None))
    marked = unmarked.values(deleting_at=db_now(), version=JobRow.version + 1)
    return changed(session, marked) == 1


def lock(session: Session, job_id: str) -> None:
    """Wait for submits of jobs that begin from this one, and keep out others.

    :func:`check_heirs` reads their jobs in a later statement, which sees those that were first.
    """
    session.execute(select(JobRow.id).where(JobRow.id == job_id).with_for_update())


def marked(session: Session) -> list[str]:
    """Return the jobs whose deletion was interrupted."""
    late = JobRow.deleting_at <= db_now() - ABANDONED_SECONDS
    return list(session.scalars(select(JobRow.id).where(late).order_by(JobRow.id)))


def finish(database: Database, blobs: BlobStore, job_id: str) -> bool:
    """Delete a marked job and its data; False if it was deleted already.

    Parts that are deleted already are skipped, so the call may be repeated until it succeeds. Its
    use of devices stays in the ledger. Of an attempt that the scheduler has not yet added, repeated
    steps count as productive: the data about steps is deleted.
    """
    for folder in ("jobs", FILES):
        blobs.delete_tree(f"{folder}/{job_id}")
    _remove_series(database, job_id)
    with database.jobs() as session:
        ledger.add(session, ledger.due(session, job_id=job_id), steps={})
        write(session, delete(IdempotencyKeyRow).where(IdempotencyKeyRow.job_id == job_id))
        spec = session.scalars(select(JobRow.spec).where(JobRow.id == job_id)).one_or_none()
        if spec is not None:
            settings.remove(session, job_id, spec)
        gone = delete(JobRow).where(JobRow.id == job_id, JobRow.deleting_at.is_not(None))
        return changed(session, gone) == 1


def check(session: Session, job_id: str, *, among: Within) -> None:
    """Raise if the job must not be deleted; a deleted job may be.

    Raises
    ------
    LockstepError
        As :func:`mark`.
    """
    job = session.execute(
        select(JobRow.state, JobRow.name).where(JobRow.id == job_id)
    ).one_or_none()
    if job is None:
        return
    if job.state not in TERMINAL:
        raise _conflict(
            f"{job.name} ({job_id}) has not ended", f"Cancel it with: lockstep cancel {job_id}"
        )
    holding = select(AssignmentRow.node_name).where(
        AssignmentRow.job_id == job_id, AssignmentRow.state != AssignmentState.RELEASED
    )
    node = session.scalars(holding.limit(1)).one_or_none()
    if node is not None:
        raise _conflict(
            f"node {node} has not yet confirmed that it removed {job.name} ({job_id})",
            "Try again in a moment; a lost node confirms it when it is back.",
        )
    check_heirs(session, job_id, job.name, among=among)


def check_heirs(session: Session, job_id: str, name: str, *, among: Within) -> None:
    """Raise if a job that has not ended begins with something of this one.

    Raises
    ------
    LockstepError
        ``CONFLICT``. It names no job outside of ``among``.
    """
    heir = _heir(session, job_id)
    if heir is not None:
        named = f"{heir.name} ({heir.id})"
        starting = named if heir.project in among else "a job of another project"
        raise _conflict(
            f"{starting} has not ended and starts from checkpoints or files of {name} ({job_id})",
            "Wait until it ends, or cancel it first.",
        )


def has_heir(session: Session, job_id: str) -> bool:
    """Return whether a job that has not ended begins with something of this one."""
    return _heir(session, job_id) is not None


def _heir(session: Session, job_id: str) -> Any:
    """Return a job that has not ended and begins with something of this one."""
    continues = JobRow.spec["continues"].as_string().label("continues")
    live = select(JobRow.id, JobRow.name, JobRow.project, continues)
    live = live.where(JobRow.state.not_in(TERMINAL))
    names_it = cast(JobRow.spec, Text).contains(job_id, autoescape=True)
    heir = session.execute(live.where(names_it).limit(1)).one_or_none()
    others = session.execute(live.where(continues.is_not(None))) if heir is None else ()
    return heir or next(
        (each for each in others if job_id in lineage.line(session, each.continues)), None
    )


def _conflict(message: str, next_step: str) -> LockstepError:
    return LockstepError(ErrorCode.CONFLICT, message, next_step=next_step)


def delete_chunks(
    database: Database,
    chunk: type[SeriesChunkRow | LogChunkRow],
    job_id: str,
    go_on: Callable[[], bool] = lambda: True,
) -> bool:
    """Delete a job's points or lines, some in each transaction.

    False if ``go_on`` ended it before they were all gone.
    """
    some = select(chunk.id).where(chunk.job_id == job_id).limit(CHUNKS_AT_ONCE)
    while go_on():
        with database.series() as session:
            if changed(session, delete(chunk).where(chunk.id.in_(some))) < CHUNKS_AT_ONCE:
                return True
    return False


def _remove_series(database: Database, job_id: str) -> None:
    for chunk in (SeriesChunkRow, LogChunkRow):
        delete_chunks(database, chunk, job_id)
    with database.series() as session:
        streams = select(StreamRow.assignment_id).where(StreamRow.job_id == job_id)
        write(session, delete(StreamOffsetRow).where(StreamOffsetRow.assignment_id.in_(streams)))
        for row in (
            StreamRow,
            SeriesLatestRow,
            SeriesDefinitionRow,
            LogTotalRow,
            ProgressRow,
        ):
            write(session, delete(row).where(row.job_id == job_id))
