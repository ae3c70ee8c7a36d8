"""What is new of jobs that somebody follows: one cheap statement for all of them.

Not here: who follows (``api.following``), and what is then read (``storage.log_pages``).
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.orm import Session

from domain.lifecycle import JobState
from storage.series_tables import ProgressRow
from storage.tables import JobRow


def states(session: Session, job_ids: Collection[str]) -> dict[str, JobState]:
    """Each job's state; a job that is no more is missing."""
    statement = select(JobRow.id, JobRow.state).where(JobRow.id.in_(job_ids))
    return {row.id: row.state for row in session.execute(statement)}


def counts(session: Session, job_ids: Collection[str]) -> dict[str, int]:
    """How many batches of points and lines were stored of each job; a job that has none yet is missing."""
    statement = select(ProgressRow.job_id, ProgressRow.seq).where(ProgressRow.job_id.in_(job_ids))
    return {row.job_id: row.seq for row in session.execute(statement)}
