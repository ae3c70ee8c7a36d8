"""Jobs that a job continues.

One that ended before it had anything of its own, because it was cancelled while it waited or its
node was lost early, hands on what the job before it has.

Not here: the curve (``storage.series.inherited``), and the files themselves
(``worker.upload.kept.restoring``).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from lockstep.storage.db.file_tables import KeptRoundRow
from lockstep.storage.db.tables import CheckpointRow, JobRow

LENGTH_MAX: Final = 1_000


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
