"""Views of followed jobs: one is made for each change of a job, for all of its readers.

A list of running jobs changes with each point of each of them, and each open page asks for it. Only
the jobs that changed since the last answer are read.

The key is the version of a job, which changes whenever its view may. Waiting jobs are read each
time: their views also depend on the queue and on the reader.

Not here: the views themselves (``api.jobs.views``), versions (``storage.jobs.listing``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from lockstep.api.http.recently_used import RecentlyUsed
from lockstep.api.jobs.views import NONE, job_views
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
    def key(self) -> tuple[str, int, int]:
        """Key of the job's view."""
        return self.mark.id, self.mark.version, self.batches


class KnownViews:
    """Views of jobs by their versions. Thread-safe."""

    def __init__(self, database: Database, bytes_max: int = BYTES_MAX):
        self._database = database
        self._views: RecentlyUsed[tuple[str, int, int], JobView] = RecentlyUsed(bytes_max)

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
        known = {job.mark.id: self._views.get(job.key) for job in jobs if not job.mark.is_queued}
        found = {job_id: view for job_id, view in known.items() if view is not None}
        missing = [job for job in jobs if job.mark.id not in found]
        if missing:
            with self._database.read_jobs() as session:
                rows = listing.rows(session, [job.mark.id for job in missing])
            new = {view.id: view for view in job_views(self._database, rows, starts, among=among)}
            self._keep(missing, new)
            found |= new
        return [found[job.mark.id] for job in jobs if job.mark.id in found]

    def forget(self) -> None:
        """Remove every view."""
        self._views.forget()

    def _keep(self, jobs: Sequence[Marked], views: Mapping[str, JobView]) -> None:
        for job in jobs:
            view = views.get(job.mark.id)
            # A job may have returned to the queue after its mark was read.
            if view is not None and not job.mark.is_queued and view.state is not JobState.QUEUED:
                self._views.keep(job.key, view, len(view.model_dump_json()))
