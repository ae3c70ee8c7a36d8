"""Detection of changes in followed jobs: one cheap statement for all of them.

Not here: the followers (``api.http.following``), and the reads (``storage.logs.log_pages``).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlalchemy import Connection, bindparam, select

from lockstep.domain.life.lifecycle import JobState
from lockstep.storage.db.series_tables import ProgressRow
from lockstep.storage.db.tables import JobRow

_STATES: Final = select(JobRow.id, JobRow.state).where(
    JobRow.id.in_(bindparam("job_ids", expanding=True))
)
_COUNTS: Final = select(ProgressRow.job_id, ProgressRow.seq).where(
    ProgressRow.job_id.in_(bindparam("job_ids", expanding=True))
)


def states(connection: Connection, job_ids: Collection[str]) -> dict[str, JobState]:
    """Each job's state; a job that is no more is missing."""
    return dict(connection.execute(_STATES, {"job_ids": list(job_ids)}).all())


def counts(connection: Connection, job_ids: Collection[str]) -> dict[str, int]:
    """Return the number of stored batches of each job; a job without any is missing."""
    return dict(connection.execute(_COUNTS, {"job_ids": list(job_ids)}).all())
