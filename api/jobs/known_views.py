"""Views of followed jobs: one is made for each change of a job, for all of its readers.

A list of running jobs changes with each point of each of them, and each open page asks for it. Only
the jobs that changed since the last answer are read, and of a job with new points only its
progress.

The key is the version of a job, which changes whenever its view may. Only after a restore of the
database may a version return with other values: then all views are forgotten (``api.http.places``).
Waiting jobs are read each time: their views also depend on the queue and on the reader.

Not here: the views themselves (``api.jobs.views``), versions (``storage.jobs.listing``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from lockstep.api.http.recently_used import RecentlyUsed
from lockstep.api.jobs.views import NONE, JobRelations, job_views, with_progress
from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.rights import Within
from lockstep.domain.views import JobView
from lockstep.storage.db.database import Database
from lockstep.storage.jobs import listing
from lockstep.storage.jobs.listing import PageMark

BYTES_MAX: Final = 8 * 2**20
"""Limit of all views together, by the length of their JSON, which is a few kB for most."""


class Marked(NamedTuple):
    """Version of a job and of its points."""

    mark: PageMark
    batches: int
    """Number of stored batches of its points and log lines."""

    @property
    def key(self) -> tuple[str, int]:
        """Key of the job's view."""
        return self.mark.id, self.mark.version


class _Known(NamedTuple):
    """View of a job, and the number of batches that its progress has at least."""

    view: JobView
    batches: int
    size: int


_Views = RecentlyUsed[tuple[str, int], _Known]


class KnownViews:
    """Views of jobs by their versions. Thread-safe."""

    def __init__(self, database: Database, bytes_max: int = BYTES_MAX):
        self._database, self._bytes_max = database, bytes_max
        self._views: _Views = RecentlyUsed(bytes_max)

    def read(
        self, jobs: Sequence[Marked], starts: Mapping[str, float] = NONE, *, among: Within
    ) -> list[JobView]:
        """Return views of jobs in this order, without those that are no more.

        Parameters
        ----------
        jobs : sequence of Marked
            Jobs that the reader may read.
        starts : mapping of job id to seconds since the epoch
            Predicted starts of queued jobs.
        among : Within
            Projects that the reader may read.
        """
        views = self._views
        found = self._known(views, [job for job in jobs if not job.mark.is_queued])
        missing = [job for job in jobs if job.mark.id not in found]
        if missing:
            with self._database.read_jobs() as session:
                rows = listing.rows(session, [job.mark.id for job in missing])
            new = {view.id: view for view in job_views(self._database, rows, starts, among=among)}
            for job in missing:
                if not job.mark.is_queued and job.mark.id in new:
                    _keep(views, job, new[job.mark.id])
            found |= new
        return [found[job.mark.id] for job in jobs if job.mark.id in found]

    def forget(self) -> None:
        """Remove every view, and those that are being made."""
        self._views = RecentlyUsed(self._bytes_max)

    def _known(self, views: _Views, jobs: Sequence[Marked]) -> dict[str, JobView]:
        """Return the views that are known, with their progress as of now."""
        known = [(job, kept) for job in jobs if (kept := views.get(job.key)) is not None]
        found = {job.mark.id: kept.view for job, kept in known}
        moved = [(job, kept) for job, kept in known if kept.batches != job.batches]
        if moved:
            relations = JobRelations().with_series(
                self._database, [job.mark.id for job, _ in moved]
            )
            for job, kept in moved:
                view = found[job.mark.id] = with_progress(kept.view, relations)
                new = kept._replace(view=view, batches=job.batches)
                views.keep(job.key, new, kept.size)
        return found


def _keep(views: _Views, job: Marked, view: JobView) -> None:
    """Keep a new view, unless the job returned to the queue after its mark was read.

    Nor if a backup was restored since then: the view is of an older version than its mark.
    """
    if view.state is not JobState.QUEUED and view.version >= job.mark.version:
        size = len(view.model_dump_json())
        views.keep(job.key, _Known(view, job.batches, size), size)
