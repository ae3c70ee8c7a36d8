"""Cheap reads that show a change of a job: for streams, for polls, and for entity tags.

A stream reads the states and the numbers of batches of all followed jobs. A poll reads the mark of
one job. An entity tag contains the number of batches.

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
    """Return the state of each job; a deleted job is missing."""
    return dict(connection.execute(_STATES, {"job_ids": list(job_ids)}).all())


def counts(connection: Connection, job_ids: Collection[str]) -> dict[str, int]:
    """Return the number of stored batches of each job; a job without any is missing."""
    return dict(connection.execute(_COUNTS, {"job_ids": list(job_ids)}).all())


class FollowedMark(NamedTuple):
    """Version of a job, its batches and its events."""

    job: PageMark
    batches: int
    """Number of stored batches."""
    newest_event: int
    """Its id; 0 without an event."""
    any_node: bool
    """True if a node with devices was ever registered."""


def of_job(database: Database, reference: str, *, among: Within) -> FollowedMark:
    """Return the mark of one job for a poll, by one statement if one database has all tables.

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
    """Return the statement of :func:`of_job`. It is cached, because polls repeat it."""
    progress, event = table_of(ProgressRow), table_of(EventRow)
    batches = select(progress.c.seq).where(progress.c.job_id == JOBS.c.id)
    newest = select(func.max(event.c.id)).where(event.c.job_id == JOBS.c.id)
    return jobs.marked(among).add_columns(
        func.coalesce(batches.scalar_subquery(), 0),
        func.coalesce(newest.scalar_subquery(), 0),
        exists(select(table_of(DeviceRow).c.node_name)),
    )
