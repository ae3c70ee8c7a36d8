"""Version of a job for conditional requests: cheap to read, and it changes with each answer.

Not here: comparing tags (``api.http.conditional``), tags of lists (``api.http.tags``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from lockstep.api.http import tags
from lockstep.api.jobs.estimates import Estimates
from lockstep.api.jobs.known_views import Marked
from lockstep.api.jobs.views import job_tag, starts_of
from lockstep.domain.rights import Within
from lockstep.storage.attempts import nodes
from lockstep.storage.db.database import Database
from lockstep.storage.jobs import change_feed, jobs


class JobVersion(NamedTuple):
    """Version of a job as one reader sees it."""

    job: Marked
    starts: Mapping[str, float]
    """Predicted starts, where known."""
    parts: tuple[object, ...]
    """Parts of its entity tag."""

    @property
    def id(self) -> str:
        """Id of the job."""
        return self.job.mark.id


def read(
    database: Database,
    estimates: Estimates,
    reference: str,
    *,
    among: Within,
) -> JobVersion:
    """Return the version of the job of a reference.

    Parameters
    ----------
    database : Database
    estimates : Estimates
    reference : str
    among : Within
        Projects that the reader may read.

    Raises
    ------
    LockstepError
        As ``storage.jobs.jobs.find``.
    """
    with database.look_jobs() as look:
        mark = jobs.mark(look, reference, among=among)
        known = nodes.any_ever(look) if mark.is_unseen else None
    batches = tags.batches_of(database, [mark]).get(mark.id, 0)
    return _version(estimates, Marked(mark, batches), known, among)


class FollowedVersion(NamedTuple):
    """Version of a job, its points and its events."""

    job: JobVersion
    newest_event: int
    """Its id; 0 without an event."""


def followed(
    database: Database, estimates: Estimates, reference: str, *, among: Within
) -> FollowedVersion:
    """Return the version of a job with its points and events.

    A job that was never placed may have inherited points. The parameters and errors are those of
    :func:`read`.
    """
    found = change_feed.of_job(database, reference, among=among)
    known = found.any_node if found.job.is_unseen else None
    version = _version(estimates, Marked(found.job, found.batches), known, among)
    parts = (*version.parts, found.newest_event)
    return FollowedVersion(version._replace(parts=parts), found.newest_event)


def _version(estimates: Estimates, job: Marked, known: bool | None, among: Within) -> JobVersion:
    """``known`` is part of the answer for a job that the scheduler has not examined yet."""
    starts = starts_of(estimates, [job.mark])
    version = job_tag(job.mark, job.batches)
    start = starts.get(job.mark.id)
    return JobVersion(job, starts, (*version, known, start, *tags.seen_by(among)))
