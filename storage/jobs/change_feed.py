"""What is new of jobs that somebody follows: one cheap statement for all of them.

Not here: who follows (``api.http.following``), and what is then read (``storage.logs.log_pages``).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlalchemy import Connection, bindparam, select

from lockstep.domain.life.lifecycle import JobState
from lockstep.storage.db.series_tables import ProgressRow
from lockstep.storage.db.tables import JobRow

_STATES: Final = select(JobRow.id, JobRow.state).where(JobRow.id.in_(bindparam("job_ids", expanding=True)))
_COUNTS: Final = select(ProgressRow.job_id, ProgressRow.seq).where(
    ProgressRow.job_id.in_(bindparam("job_ids", expanding=True))
)


def states(connection: Connection, job_ids: Collection[str]) -> dict[str, JobState]:
    """Each job's state; a job that is no more is missing."""
    return dict(connection.execute(_STATES, {"job_ids": list(job_ids)}).all())


def counts(connection: Connection, job_ids: Collection[str]) -> dict[str, int]:
    """How many batches of points and lines were stored of each job; a job that has none yet is missing."""
    return dict(connection.execute(_COUNTS, {"job_ids": list(job_ids)}).all())
