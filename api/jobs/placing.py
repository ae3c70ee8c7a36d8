"""Plan of a job that is not submitted: its batch plan, placement and queue position. Read-only.

The scheduler uses the same pure function with the same data. The result is therefore the decision
of its next reconcile cycle, unless the state changes before that.

Not here: placing jobs (``scheduler``).
"""

from __future__ import annotations

from typing import Final

from lockstep.api.jobs.forecasts import Forecasts
from lockstep.api.jobs.submitting import check_capacity, settle
from lockstep.api.jobs.uploads import Uploads
from lockstep.api.jobs.views import moment_or_none, no_node_offers, readable_facts, time_limit
from lockstep.domain.life.retrying import retries_of_script
from lockstep.domain.queue_views import QueuePlace
from lockstep.domain.rights import Right, Rights, Within
from lockstep.domain.scheduling.decide import decide, nodes_asked, over_budget, rounded
from lockstep.domain.scheduling.forecast import starts
from lockstep.domain.scheduling.reasons import sentence
from lockstep.domain.scheduling.state import ClusterState, JobRequest, Project, Wait
from lockstep.domain.spec.job import JobSpec, Retry
from lockstep.domain.spec.reading import invalid, read_spec
from lockstep.domain.training.plan import plan_of
from lockstep.domain.views import PlanView, RetriesView
from lockstep.storage.attempts import nodes
from lockstep.storage.control import agreed_timings, snapshots
from lockstep.storage.control.averages import Averages
from lockstep.storage.db.database import Database
from lockstep.storage.jobs.foreign import Mentions
from lockstep.storage.people import limits, projects

_THIS: Final = "the planned job"
"""Placeholder for the job id."""


def plan(
    database: Database,
    uploads: Uploads,
    document: object,
    *,
    actor: str,
    rights: Rights,
    service: limits.ServiceLimits,
    averages: Averages,
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
        spec, project = projects.settled(session, spec, rights, projects.get)
        projects.is_new(session, spec, project, actor, rights)
        has_members, largest = limits.installation(session)
        spec, source = limits.with_defaults(project, spec, service, has_members=has_members)
        refused = tuple(limits.check(project, spec, service))
        lacking = nodes.lacking(session, spec.needs())
        owner = spec.project, actor
        rows = snapshots.read(
            session, agreed_timings.read(session), planned_for=[owner], average=averages.read
        )
    errors = (*check_capacity(spec, largest), *refused, *missing)
    if errors:
        raise invalid(errors)
    with database.read_jobs() as session:
        limits.check_queue(session, project, actor)
    request = _request_of(spec, actor, submitted_at=rows.at)
    state = rows.state(snapshots.expected(database, rows), planned=(request,))
    decision = decide(state)
    wait = next((wait for wait in decision.waits if wait.job_id == _THIS), None)
    among, batch = rights.within(Right.JOB_READ), plan_of(spec)
    placed = [
        name for start in decision.starts if start.job_id == _THIS for name, _ in start.devices
    ]
    return PlanView(
        plan=batch,
        sentence=None if batch is None else batch.sentence(),
        spec=spec.model_dump(mode="json"),
        placement=placed,
        queue=None if wait is None else _place_of(wait, state, database, among),
        memory=forecasts.of(spec, nodes=placed, among=among),
        retries=None if spec.script is None else _retries(spec.retry),
        limit=time_limit(spec.timeout_seconds, source),
        warnings=_warnings(largest, lacking, spec.project, rows.projects.get(spec.project)),
    )


def _place_of(wait: Wait, state: ClusterState, database: Database, among: Within) -> QueuePlace:
    start = wait.reason.facts.get("starts_at")
    if start is None and (found := starts(state).get(_THIS)) is not None:
        start = rounded(found, now=state.now)
    reason = sentence(wait.reason)
    with database.read_jobs() as session:
        mentions = Mentions(session, [reason], among=among)
    return QueuePlace(
        position=wait.position,
        reason=mentions.text(reason),
        code=wait.reason.code,
        facts=readable_facts(wait.reason.facts, mentions),
        estimated_start=moment_or_none(start),
    )


def _warnings(largest: int, lacking: str, name: str, project: Project | None) -> list[str]:
    found = []
    if not largest:
        found.append("no node is registered yet, so it is unknown whether the job fits")
    elif lacking:
        found.append(no_node_offers(lacking))
    if project is not None and project.is_over_budget and not project.is_held:
        found.append(sentence(over_budget(name, project)))
    return found


def _retries(retry: Retry) -> RetriesView:
    found = retries_of_script(retry)
    return RetriesView.model_validate(
        {**found._asdict(), "max": retry.max, "sentences": found.sentences(retry)}
    )


def _request_of(spec: JobSpec, actor: str, *, submitted_at: float) -> JobRequest:
    return JobRequest(
        job_id=_THIS,
        project=spec.project,
        user=actor,
        priority=spec.priority,
        submitted_at=submitted_at,
        devices=spec.device_count(),
        nodes=nodes_asked(spec.resources.nodes),
        device_type=spec.resources.gpu_type,
        needs=frozenset(spec.needs()),
        limit_seconds=spec.timeout_seconds,
    )
