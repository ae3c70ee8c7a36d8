"""Detection of changes in followed jobs: one cheap statement for all of them, or for one.

Not here: the followers (``api.http.following``), and the reads (``storage.logs.log_pages``).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Select, bindparam, exists, func, select

from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.rights import Within
from lockstep.storage.attempts import events, nodes
from lockstep.storage.db.database import Database
from lockstep.storage.db.dialects import table_of
from lockstep.storage.db.series_tables import ProgressRow
from lockstep.storage.db.tables import DeviceRow, EventRow, JobRow
from lockstep.storage.jobs import jobs
from lockstep.storage.jobs.columns import JOBS
from lockstep.storage.jobs.listing import PageMark

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


class FollowedMark(NamedTuple):
    """Version of a job, and of what was stored of it."""

    job: PageMark
    batches: int
    """Number of stored batches."""
    newest_event: int
    """Its id; 0 without an event."""
    any_node: bool
    """True if a node with devices was ever registered."""


def of_job(database: Database, reference: str, *, among: Within) -> FollowedMark:
    """Return what a poll of the job of a reference has to know, by one statement if possible.

    Raises
    ------
    LockstepError
        As ``storage.jobs.jobs.find``.
    """
    if database.can_join:
        with database.look_lists() as look:
            row = jobs.marked_row(look, _followed(among), reference, among=among)
        *mark, batches, newest, any_node = row
        return FollowedMark(PageMark(*mark), batches, newest, any_node)
    with database.look_jobs() as look:
        job = jobs.mark(look, reference, among=among)
        newest, any_node = events.newest_id(look, job.id), nodes.any_ever(look)
    with database.look_series() as look:
        return FollowedMark(job, counts(look, [job.id]).get(job.id, 0), newest, any_node)


@lru_cache(maxsize=64)
def _followed(among: Within) -> Select[*tuple[Any, ...]]:
    """The statement, kept for polls."""
    progress, event = table_of(ProgressRow), table_of(EventRow)
    batches = select(progress.c.seq).where(progress.c.job_id == JOBS.c.id)
    newest = select(func.max(event.c.id)).where(event.c.job_id == JOBS.c.id)
    return jobs.marked(among).add_columns(
        func.coalesce(batches.scalar_subquery(), 0),
        func.coalesce(newest.scalar_subquery(), 0),
        exists(select(table_of(DeviceRow).c.node_name)),
    )
