"""Plan of a job that is not submitted: its batch plan, placement and queue position. Read-only.

The scheduler uses the same pure function with the same data. The result is therefore the decision
of its next reconcile cycle, unless the state changes before that.

Not here: placing jobs (``scheduler``).
"""

from __future__ import annotations

from typing import Final

from lockstep.api.jobs.estimates import releases, rounded
from lockstep.api.jobs.forecasts import Forecasts
from lockstep.api.jobs.submitting import check_capacity, settle
from lockstep.api.jobs.uploads import Uploads
from lockstep.api.jobs.views import moment, no_node_offers
from lockstep.domain.life.retrying import retries_of_script
from lockstep.domain.placement.decide import nodes_asked, place
from lockstep.domain.placement.forecast import starts
from lockstep.domain.placement.requests import Placed, PlacementRequest, Waiting
from lockstep.domain.rights import Right, Rights
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.reading import invalid, read_spec
from lockstep.domain.training.plan import plan_of
from lockstep.domain.views import PlanView, QueuePlace, RetriesView
from lockstep.storage.attempts import nodes
from lockstep.storage.control import agreed_timings, scheduling
from lockstep.storage.db.clock import now
from lockstep.storage.db.database import Database
from lockstep.storage.jobs.foreign import Mentions
from lockstep.storage.people import projects

_THIS: Final = "the planned job"
"""Placeholder for the job id."""


def plan(
    database: Database,
    uploads: Uploads,
    document: object,
    *,
    actor: str,
    rights: Rights,
    forecasts: Forecasts,
) -> PlanView:
    """Check a document like a submit, and return its plan and placement.

    Raises
    ------
    LockstepError
        If a submit would be rejected.
    """
    spec = read_spec(document)
    spec, missing = settle(database, uploads, spec, rights)
    with database.read_jobs() as session:
        project = projects.get(session, spec.project)
        projects.is_new(session, spec.project, project, actor, rights)
        spec = projects.with_defaults(project, spec)
        refused = tuple(projects.check_limits(session, project, spec))
        largest = nodes.largest_ever(session)
        lacking = nodes.lacking(session, spec.needs())
        queue = scheduling.queue(session)
        lease_seconds = agreed_timings.read(session).lease_seconds
        cluster = scheduling.cluster(session, lease_seconds=lease_seconds)
        at = now(session)
    errors = (*check_capacity(spec, largest), *refused, *missing)
    if errors:
        raise invalid(errors)
    requests = [job.request() for job in queue] + [_request_of(spec, created_at=at)]
    decisions = place(requests, cluster, now=at)
    mine = next(decision for decision in decisions if decision.job_id == _THIS)
    among, batch = rights.within(Right.JOB_READ), plan_of(spec)
    turn = None
    if isinstance(mine, Waiting):
        start = starts(requests, cluster, releases(database, at=at), now=at).get(_THIS)
        about = None if start is None else moment(rounded(start, now=at))
        with database.read_jobs() as session:
            mentions = Mentions(session, [mine.reason], among=among)
        turn = QueuePlace(
            position=mine.position, reason=mentions.text(mine.reason), estimated_start=about
        )
    placed = [name for name, _ in mine.devices] if isinstance(mine, Placed) else []
    return PlanView(
        plan=batch,
        sentence=None if batch is None else batch.sentence(),
        spec=spec.model_dump(mode="json"),
        placement=placed,
        queue=turn,
        memory=forecasts.of(spec, nodes=placed, among=among),
        retries=None if spec.script is None else _retries(spec.retry.max),
        warnings=_warnings(largest, lacking),
    )


def _warnings(largest: int, lacking: str) -> list[str]:
    if not largest:
        return ["no node is registered yet, so it is unknown whether the job fits"]
    return [no_node_offers(lacking)] if lacking else []


def _retries(retries_max: int) -> RetriesView:
    found = retries_of_script(retries_max)
    return RetriesView.model_validate(
        {**found._asdict(), "max": retries_max, "sentences": found.sentences(retries_max)}
    )


def _request_of(spec: JobSpec, *, created_at: float) -> PlacementRequest:
    return PlacementRequest(
        job_id=_THIS,
        priority=spec.priority,
        created_at=created_at,
        devices=spec.device_count(),
        nodes=nodes_asked(spec.resources.nodes),
        device_type=spec.resources.gpu_type,
    )
