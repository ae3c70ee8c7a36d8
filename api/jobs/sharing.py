"""Shares of projects, and what is ahead of a job.

Not here: the decision (``domain.scheduling``), the list of the queue (``api.routes.jobs``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Final

from lockstep.api.jobs.views import job_views, time_limit
from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.queue_views import JobAhead, SharesView, ShareView, UserShare, WhyView
from lockstep.domain.rights import Within
from lockstep.domain.scheduling.entitlement import entitled
from lockstep.domain.scheduling.reasons import unknown_start
from lockstep.domain.scheduling.state import Project
from lockstep.domain.views import JobView
from lockstep.storage.control import agreed_timings, snapshots
from lockstep.storage.control.averages import Averages
from lockstep.storage.control.snapshots import ClusterRows
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import JobRow
from lockstep.storage.jobs import listing
from lockstep.system.recent import Recent

AHEAD_MAX: Final = 20
User = tuple[str, str]
"""Project and person."""


REMEMBER_SECONDS: Final = 5.0


class Shares:
    """Shares of all projects, read from the rows at most once in a few seconds.

    Parameters
    ----------
    database : Database
    averages : Averages
    """

    def __init__(self, database: Database, averages: Averages) -> None:
        self._read = partial(_read, database, averages)
        self._recent: Recent[SharesView] = Recent()

    def among(self, among: Within) -> SharesView:
        """Return the shares of the projects that a caller may read."""
        found = self._recent.get(self._read, seconds=REMEMBER_SECONDS)
        return found.model_copy(
            update={"items": [item for item in found.items if item.project in among]}
        )


def _read(database: Database, averages: Averages) -> SharesView:
    with database.read_jobs() as session:
        timings = agreed_timings.read(session)
        rows = snapshots.read(session, timings, average=averages.read)
        average = averages.read(session, rows.at, timings.half_life_seconds)
    in_use: Counter[User] = Counter()
    for holder, held in rows.devices.items():
        in_use[holder.project, holder.actor] += len(held)
    queued = Counter((job.project, job.actor) for job in rows.queue)
    active = {project for project, _ in (*in_use, *queued)}
    devices = sum(len(node.devices) for node in rows.nodes if node.ready)
    weights = {name: project.weight for name, project in rows.projects.items()}
    parts = entitled(weights, active, devices)
    names = sorted({*rows.projects, *active})
    return SharesView(
        devices=devices,
        half_life_seconds=timings.half_life_seconds,
        items=[
            _share(name, rows, parts.get(name), _people(name, in_use, queued, average))
            for name in names
        ],
    )


def _people(
    project: str, in_use: Counter[User], queued: Counter[User], average: Mapping[User, float]
) -> list[UserShare]:
    names = {user for name, user in (*in_use, *queued, *average) if name == project}
    return [
        UserShare(
            user=user,
            in_use=in_use[project, user],
            average=average.get((project, user), 0.0),
            queued=queued[project, user],
        )
        for user in sorted(names)
    ]


def _share(name: str, rows: ClusterRows, part: float | None, people: list[UserShare]) -> ShareView:
    project = rows.projects.get(name, Project())
    has_budget = project.budget_hours is not None
    return ShareView(
        project=name,
        weight=project.weight,
        entitled=part,
        in_use=sum(each.in_use for each in people),
        average=sum(each.average for each in people),
        queued=sum(each.queued for each in people),
        gpus_max=project.gpus_max,
        budget_gpu_hours=project.budget_hours,
        used_gpu_hours=project.used_hours if has_budget else None,
        people=people,
    )


def _start(view: JobView) -> str | None:
    if view.state is not JobState.QUEUED:
        return None
    if view.queue is None or view.queue.estimated_start is None:
        if (place := view.queue) is None:
            return f"no start is known: {unknown_start(None)}"
        why = unknown_start(place.code, place.position, place.facts)
        return f"no start is known: {why}"
    return f"it starts about {view.queue.estimated_start:%Y-%m-%d %H:%M} UTC"


def why(database: Database, job: JobRow, starts: Mapping[str, float], among: Within) -> WhyView:
    """Return why a job waits, when it starts, and what is ahead of it."""
    (view,) = job_views(database, [job], starts, among=among)
    place = view.queue
    ahead: list[JobRow] = []
    count = 0
    if place is not None:
        with database.read_jobs() as session:
            ahead, count = listing.ahead(session, place.position, among=among, limit=AHEAD_MAX)
    return WhyView(
        id=job.id,
        name=job.name,
        state=job.state,
        queue=place,
        start=_start(view),
        ahead=[
            JobAhead(
                id=each.id,
                name=each.name,
                project=each.project,
                owner=each.actor,
                devices=each.devices,
                position=each.wait_position or 0,
            )
            for each in ahead
        ],
        ahead_count=count,
        limit=time_limit(job.timeout_seconds, job.timeout_source),
    )
