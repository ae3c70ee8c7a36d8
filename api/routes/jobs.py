"""Jobs: submit, plan, read, cancel and delete.

A submit is one transaction. The wake-up after its commit may be lost: the row is sufficient.

Not here: lists (``api.routes.job_lists``), output of a job's processes (``api.routes.history``,
``api.routes.logs``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import Field
from starlette.routing import Match
from starlette.types import Scope

from lockstep.api import changes
from lockstep.api.access import ChangesJobs, Controls, Grant, Reads, Submits, guarded
from lockstep.api.http import conditional
from lockstep.api.http.body import Document
from lockstep.api.http.openapi import SPEC_BODY
from lockstep.api.http.problems import documented
from lockstep.api.jobs import placing, submitting, versions
from lockstep.api.jobs.versions import JobVersion
from lockstep.api.jobs.views import JobRelations, job_view, job_views
from lockstep.api.parts import AppState, AppStateDep
from lockstep.broker.messages import StopAssignment, WakeScheduler
from lockstep.domain.audit import Action
from lockstep.domain.life.lifecycle import AssignmentState
from lockstep.domain.limits import IDEMPOTENCY_KEY_CHARS_MAX
from lockstep.domain.views import JobView, PlanView
from lockstep.storage.attempts import attempts
from lockstep.storage.control import agreed_timings
from lockstep.storage.db.tables import JobRow
from lockstep.storage.jobs import jobs, removal, stopping
from lockstep.storage.people import limits, projects


class JobsRoute(APIRoute):
    """Route that takes the address of the plan for no job: none can have this name."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, more = super().matches(scope)
        of_plan = more.get("path_params", {}).get("reference") == "plan"
        return (Match.NONE, {}) if of_plan else (match, more)


router = APIRouter(prefix="/v1", tags=["jobs"], dependencies=guarded, route_class=JobsRoute)

Reference = Annotated[
    str,
    Path(
        min_length=1,
        max_length=200,
        description="An id, a prefix or suffix of at least 4 characters of an id, a name (the newest job "
        "of that name), or `last`.",
        examples=["last"],
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=IDEMPOTENCY_KEY_CHARS_MAX,
        pattern=r"^[!-~]+$",
        description="Visible ASCII, chosen by the client. A repeated request with the same key and body "
        "returns the same job.",
    ),
]


@router.post(
    "/jobs",
    operation_id="submitJob",
    summary="Submit a job",
    status_code=201,
    response_model=JobView,
    response_description="The job, queued.",
    responses={
        200: {
            "model": JobView,
            "description": "Repeated request: the job of the first one, with `Idempotent-Replay: true`.",
        },
        **documented(400, 403, 409, 413, 415, 507),
    },
    openapi_extra=SPEC_BODY,
)
def submit(
    body: Document,
    app_state: AppStateDep,
    grant: Submits,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    submitted = submitting.submit(
        app_state.database,
        app_state.uploads,
        body,
        sender=grant.sender,
        rights=grant.caller.rights,
        service=app_state.limits,
        idempotency_key=idempotency_key,
    )
    return answer_submit(submitted, app_state, grant)


def answer_submit(
    submitted: tuple[JobRow, bool, str], app_state: AppStateDep, grant: Grant
) -> Response:
    """Return the answer with the view of a submitted job.

    Wakes the scheduler for a new job. A repeated submit gets status 200 and the job of the first
    one.
    """
    job, created, because = submitted
    headers = {"Location": f"/v1/jobs/{job.id}"}
    if created:
        app_state.notifier.publish(WakeScheduler())
        view = job_view(job, JobRelations(waits_because=because))
    else:
        headers["Idempotent-Replay"] = "true"
        view = job_views(app_state.database, [job], among=grant.readable)[0]
    # FastAPI would validate the view again, in another thread.
    body, status = view.model_dump_json(), 201 if created else 200
    return Response(body, status, headers, media_type="application/json")


@router.post(
    "/jobs/plan",
    operation_id="planJob",
    summary="Plan a job without submitting it",
    responses=documented(400, 403, 413, 415),
    openapi_extra=SPEC_BODY,
)
def plan(body: Document, app_state: AppStateDep, grant: Submits) -> PlanView:
    return placing.plan(
        app_state.database,
        app_state.uploads,
        body.document,
        actor=grant.actor,
        rights=grant.caller.rights,
        service=app_state.limits,
        averages=app_state.averages,
        forecasts=app_state.forecasts,
    )


@router.get(
    "/jobs/{reference}",
    operation_id="getJob",
    summary="Read a job",
    response_model=JobView,
    responses=conditional.documented(404),
)
def get_job(
    reference: Reference, request: Request, app_state: AppStateDep, grant: Reads
) -> Response:
    among = grant.readable
    version = versions.read(app_state.database, app_state.estimates, reference, among=among)
    tag = conditional.tag_of(*version.parts)
    if (same := conditional.unchanged(request, tag)) is not None:
        return same

    def answer() -> bytes:
        return current_view(app_state, grant, version).model_dump_json().encode()

    return app_state.rendered.answer(request, tag, answer)


def current_view(app_state: AppState, grant: Grant, version: JobVersion) -> JobView:
    """Return the view of a job for a reader who got its version.

    Raises
    ------
    LockstepError
        ``not_found`` if it was deleted since.
    """
    found = app_state.views.read([version.job], version.starts, among=grant.readable)
    if not found:
        raise jobs.no_job(version.id)
    return found[0]


_StopRequest = Callable[..., JobRow]
"""Function of ``storage.jobs.stopping``."""
Now = Annotated[
    bool, Query(description="True kills the processes at once, without a last checkpoint.")
]


@router.post(
    "/jobs/{reference}/cancel",
    operation_id="cancelJob",
    summary="Cancel a job",
    status_code=202,
    response_description="The job: cancelled if no process was running, else with `intent` `cancel` until all "
    "processes have ended, and with the limit of that in `stop_grace`.",
    responses=documented(403, 404, 409, 507),
)
def cancel(
    reference: Reference,
    app_state: AppStateDep,
    grant: Controls,
    now: Now = False,
) -> JobView:
    return _stop(app_state, grant, reference, Action.JOB_CANCEL, partial(stopping.cancel, now=now))


@router.post(
    "/jobs/{reference}/pause",
    operation_id="pauseJob",
    summary="Pause a job until it is resumed",
    status_code=202,
    response_description="The job: paused if no process was running, else with `intent` `pause` "
    "until all processes have ended. It keeps its age and its checkpoints, and uses no retry.",
    responses=documented(403, 404, 409, 507),
)
def pause(
    reference: Reference, app_state: AppStateDep, grant: Controls, now: Now = False
) -> JobView:
    return _stop(app_state, grant, reference, Action.JOB_PAUSE, partial(stopping.pause, now=now))


@router.post(
    "/jobs/{reference}/resume",
    operation_id="resumeJob",
    summary="Queue a paused job again",
    response_description="The job, queued; one that is being paused is queued once its processes "
    "have ended.",
    responses=documented(403, 404, 409, 507),
)
def resume(reference: Reference, app_state: AppStateDep, grant: Controls) -> JobView:
    return _stop(app_state, grant, reference, Action.JOB_RESUME, _resume)


def _resume(session: Any, job_id: str, actor: str, *, least_seconds: float) -> JobRow:
    """Resume a job, if its project has room for another one that waits."""
    job = jobs.get(session, job_id)
    if job is not None and stopping.is_paused(job):
        project = projects.hold(session, job.project)
        limits.check_queue(session, project, job.actor, besides=job.id)
    return stopping.resume(session, job_id, actor, least_seconds=least_seconds)


@router.post(
    "/jobs/{reference}/requeue",
    operation_id="requeueJob",
    summary="Stop a job and queue it again",
    status_code=202,
    response_description="The job, with `intent` `requeue` until all processes have ended. It uses "
    "no retry.",
    responses=documented(403, 404, 409, 422, 507),
)
def requeue(
    reference: Reference,
    app_state: AppStateDep,
    grant: Controls,
    avoid: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=255)]],
        Query(max_length=100, description="Names of nodes that it tries last from now on."),
    ] = [],  # noqa: B006 - FastAPI copies it
    now: Now = False,
) -> JobView:
    request = partial(stopping.requeue, avoid=tuple(avoid), now=now)
    return _stop(app_state, grant, reference, Action.JOB_REQUEUE, request)


def _stop(
    app_state: AppStateDep, grant: Grant, reference: str, action: Action, request: _StopRequest
) -> JobView:
    """Carry out a request of a user about a job, and wake the nodes that run it."""
    with changes.of(app_state.database, grant.sender, action) as change:
        found = jobs.find(change.session, reference, among=grant.readable)
        grant.require(found)
        change.of(found.id, found.project)
        least = agreed_timings.read(change.session).stop_grace_seconds
        job = request(change.session, found.id, grant.actor, least_seconds=least)
        newest = attempts.newest(change.session, [job.id]).get(job.id)
        parts = newest.assignments if newest is not None else []
        stops = [
            StopAssignment(part.id, part.node_name)
            for part in parts
            if part.state is AssignmentState.CLAIMED
        ]
    for stop in stops:
        app_state.notifier.publish(stop)
    app_state.notifier.publish(WakeScheduler())
    return job_views(app_state.database, [job], among=grant.readable)[0]


@router.delete(
    "/jobs/{reference}",
    operation_id="deleteJob",
    summary="Delete an ended job with its metrics, logs and checkpoints",
    status_code=204,
    response_description="Deleted.",
    responses=documented(403, 404, 409, 507),
)
def delete(reference: Reference, app_state: AppStateDep, grant: ChangesJobs) -> None:
    job = grant.find_job(app_state, reference)
    with changes.of(app_state.database, grant.sender, Action.JOB_DELETE) as change:
        change.of(job.id, job.project, name=job.name, owner=job.actor)
        change.repeated = not removal.mark(change.session, job.id, among=grant.readable)
    removal.finish(app_state.database, app_state.blobs, job.id)
