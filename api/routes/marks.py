"""Marks of a job: labels, a note, a star and a priority.

Not here: lists by them (``api.routes.job_lists``).
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter

from lockstep.api import changes
from lockstep.api.access import ChangesJobs, guarded
from lockstep.api.http.body import described, validated
from lockstep.api.http.problems import documented
from lockstep.api.jobs.views import job_views
from lockstep.api.parts import AppStateDep
from lockstep.api.routes.jobs import JobsRoute, Reference
from lockstep.broker.messages import WakeScheduler
from lockstep.domain.audit import Action
from lockstep.domain.job_marks import JobMarks
from lockstep.domain.views import JobView
from lockstep.storage.jobs import jobs, marks
from lockstep.storage.people import limits, projects

router = APIRouter(prefix="/v1", tags=["jobs"], dependencies=guarded, route_class=JobsRoute)
EXAMPLE: Final = {
    "labels": {"team": "vision", "old": None},
    "note": "the baseline",
    "starred": True,
}


@router.patch(
    "/jobs/{reference}",
    operation_id="markJob",
    summary="Change the labels, the note, the star and the priority of a job",
    description="They change nothing of the training, and the spec stays as it was submitted. A "
    "job that has ended keeps its priority.",
    responses=documented(400, 403, 404, 409, 413, 415, 507),
    openapi_extra=described(JobMarks, EXAMPLE),
)
def mark(
    reference: Reference,
    given: Annotated[JobMarks, validated(JobMarks, str(EXAMPLE))],
    app_state: AppStateDep,
    grant: ChangesJobs,
) -> JobView:
    with changes.of(app_state.database, grant.sender, Action.JOB_MARK) as change:
        job = jobs.find(change.session, reference, among=grant.readable)
        grant.require(job)
        change.of(job.id, job.project)
        if given.priority is not None:
            project = projects.get(change.session, job.project)
            limits.refuse_raise(project, job.priority, given.priority)
        marked = marks.give(change.session, job.id, given, actor=grant.actor)
        change.repeated = marked is None
        if marked is not None:
            job, change.detail = marked
    if marked is not None and "priority" in change.detail["after"]:
        app_state.notifier.publish(WakeScheduler())
    return job_views(app_state.database, [job], among=grant.readable)[0]
