"""Jobs that a job begins from: the one of its initial weights, and those that it continues.

One that ended before it had anything of its own, because it was cancelled while it waited or its
node was lost early, hands on what the job before it has.

Not here: the curve (``storage.series.inherited``), and the files themselves
(``worker.upload.kept.restoring``).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.spec.init_from import job_checkpoint
from lockstep.domain.spec.job import JobSpec
from lockstep.storage.db.file_tables import KeptRoundRow
from lockstep.storage.db.tables import CheckpointRow, JobRow

LENGTH_MAX: Final = 1_000


def hold(session: Session, spec: JobSpec) -> None:
    """Keep the jobs that a new one begins from until the end of the transaction that adds it.

    A deletion locks the row of its job, and looks for jobs that begin from it, afterwards. Of two
    at once, the later one is refused.

    Raises
    ------
    LockstepError
        ``CONFLICT`` if one of them is being deleted, or is gone.
    """
    source = None if spec.train is None else job_checkpoint(spec.train.init_from)
    wanted = [*line(session, spec.continues), *([spec.continues] if spec.continues else [])]
    wanted = sorted({*wanted, *([] if source is None else [source.job])})
    if not wanted:
        return
    # Updates of a job that runs do not wait for this lock.
    kept = select(JobRow.id).where(JobRow.id.in_(wanted), JobRow.deleting_at.is_(None))
    kept = kept.order_by(JobRow.id).with_for_update(read=True, key_share=True)
    gone = {*wanted} - {*session.scalars(kept)}
    if gone:
        raise LockstepError(
            ErrorCode.CONFLICT,
            f"job {min(gone)}, from which the new job begins, is being deleted",
            next_step="Begin from another job (train.init_from, continues).",
        )


def line(session: Session, continues: str | None) -> list[str]:
    """Return the jobs before one that continues another, nearest first.

    The last of them has what a job of its kind begins with: a train job a checkpoint, a script a
    round of files.
    """
    found: list[str] = []
    while continues is not None and len(found) < LENGTH_MAX:
        before = JobRow.spec["continues"].as_string().label("before")
        job = session.execute(
            select(JobRow.kind, before).where(JobRow.id == continues)
        ).one_or_none()
        if job is None:
            break
        found.append(continues)
        if _has_own(session, continues, job.kind):
            break
        continues = job.before
    return found


def _has_own(session: Session, job_id: str, kind: str) -> bool:
    row = CheckpointRow if kind == "train" else KeptRoundRow
    found = select(row.job_id).where(row.job_id == job_id).limit(1)
    return session.scalars(found).first() is not None
