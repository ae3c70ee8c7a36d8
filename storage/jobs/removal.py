"""Deletion of an ended job with all its data.

The data is in three places without a common transaction: blob store, series database, jobs
database. The job's row is deleted last, so an interrupted deletion can be repeated and leaves no
orphans.

Not here: checkpoints that a job itself does not keep (``storage.attempts.checkpoints.prune``), and
points and lines that it keeps for some days only (``storage.jobs.retention``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import Text, cast, delete, select
from sqlalchemy.orm import Session

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.lifecycle import TERMINAL, AssignmentState
from lockstep.domain.rights import Within
from lockstep.storage.attempts import ledger, lineage
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


def remove_output(database: Database, blobs: BlobStore, job_id: str, *, among: Within) -> None:
    """Delete a job's data in the store and in the series database.

    Parts that are deleted already are skipped, so the call may be repeated until it succeeds. A
    refusal names no job outside of ``among``.

    Raises
    ------
    LockstepError
        ``CONFLICT`` if it has not ended, a node has not removed its files yet, or a waiting or
        running job starts from one of its checkpoints.
    """
    with database.read_jobs() as session:
        check(session, job_id, among=among)
    for folder in ("jobs", FILES):
        blobs.delete_tree(f"{folder}/{job_id}")
    _remove_series(database, job_id)


def remove_row(session: Session, job_id: str, *, among: Within) -> bool:
    """Delete a job's row after its other data; False if it was deleted already.

    Its use of devices stays in the ledger. Of an attempt that the scheduler has not yet added,
    repeated steps count as productive: the data about steps is deleted.

    Raises
    ------
    LockstepError
        As :func:`remove_output`.
    """
    check(session, job_id, among=among)
    ledger.add(session, ledger.due(session, job_id=job_id), steps={})
    write(session, delete(IdempotencyKeyRow).where(IdempotencyKeyRow.job_id == job_id))
    spec = session.scalars(select(JobRow.spec).where(JobRow.id == job_id)).one_or_none()
    if spec is not None:
        settings.remove(session, job_id, spec)
    return changed(session, delete(JobRow).where(JobRow.id == job_id)) == 1


def check(session: Session, job_id: str, *, among: Within) -> None:
    """Raise if the job must not be deleted; a deleted job may be.

    Raises
    ------
    LockstepError
        As :func:`remove_output`.
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
