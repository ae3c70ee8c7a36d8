"""Version of a job for conditional requests: cheap to read, and it changes with each answer.

Not here: comparing tags (``api.http.conditional``), tags of lists (``api.http.tags``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from lockstep.api.http import tags
from lockstep.api.jobs.estimates import Estimates
from lockstep.api.jobs.views import job_tag, starts_of
from lockstep.domain.rights import Within
from lockstep.storage.attempts import nodes
from lockstep.storage.db.database import Database
from lockstep.storage.jobs import change_feed, jobs


class JobVersion(NamedTuple):
    """Version of a job as one reader sees it."""

    id: str
    starts: Mapping[str, float]
    """Predicted starts, where known."""
    parts: tuple[object, ...]
    """Parts of its entity tag."""


def read(
    database: Database,
    estimates: Estimates,
    reference: str,
    *,
    among: Within,
    points: bool = False,
) -> JobVersion:
    """Return the version of the job of a reference.

    Parameters
    ----------
    database : Database
    estimates : Estimates
    reference : str
    among : Within
        Projects that the reader may read.
    points : bool
        True if the answer has points of a job that was never placed, too: it may have inherited
        them.

    Raises
    ------
    LockstepError
        As ``storage.jobs.jobs.find``.
    """
    with database.look_jobs() as look:
        mark = jobs.mark(look, reference, among=among)
        known = nodes.any_ever(look) if mark.is_unseen else None
    batches = {}
    if mark.was_placed or points:
        with database.look_series() as look:
            batches = change_feed.counts(look, [mark.id])
    starts = starts_of(estimates, [mark])
    version = job_tag(mark, batches.get(mark.id, 0))
    return JobVersion(mark.id, starts, (*version, known, starts.get(mark.id), *tags.seen_by(among)))
