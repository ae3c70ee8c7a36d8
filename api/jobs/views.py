"""Conversion of rows to the types of ``domain.views``.

A page of jobs takes a fixed number of statements, independent of the number of jobs:
``JobRelations`` loads their related rows at once.

Not here: selecting rows (``storage``), handling requests (``api.routes``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, Literal

from lockstep.api.jobs.estimates import Estimates
from lockstep.domain.kinds.offers import PAUSES
from lockstep.domain.life.grace import Grace
from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.life.outcomes import Outcome
from lockstep.domain.queue_views import QueuePlace, TimeLimit
from lockstep.domain.rights import Within
from lockstep.domain.scheduling.state import WaitCode
from lockstep.domain.training.definitions import SeriesDefinition
from lockstep.domain.training.plan import BatchPlan
from lockstep.domain.training.series import main_series
from lockstep.domain.views import (
    AttemptView,
    CheckpointView,
    DeviceView,
    EventView,
    JobView,
    NodeView,
    Progress,
)
from lockstep.storage.attempts import attempts, nodes
from lockstep.storage.db.database import Database
from lockstep.storage.db.series_tables import ProgressRow
from lockstep.storage.db.tables import AttemptRow, CheckpointRow, EventRow, JobRow, NodeRow
from lockstep.storage.jobs.foreign import Mentions
from lockstep.storage.jobs.listing import PageMark
from lockstep.storage.jobs.marks import labels_of
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.people.limits import LimitSource
from lockstep.storage.series import definitions, series
from lockstep.storage.series.remaining import THROUGHPUT, seconds_left

NOT_LOOKED_AT: Final = "the scheduler has not processed it yet"
NO_NODE: Final = "no node is registered yet"
NodeState = Literal["ready", "draining", "quarantined", "leaving", "lost"]
NONE: Final[Mapping[str, float]] = MappingProxyType({})
_CODES: Final = {code.value: code for code in WaitCode}
"""Another code is of a newer version."""
Value = float | str
"""As encoded in JSON: non-finite values are strings."""


@dataclass(frozen=True)
class JobRelations:
    """Rows of other tables that belong to some jobs, by job id."""

    attempts: Mapping[str, AttemptRow] = field(default_factory=dict)
    """Newest attempt of each job."""
    progress: Mapping[str, ProgressRow] = field(default_factory=dict)
    latest: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    """Newest value of each series."""
    definitions: Mapping[str, Mapping[str, SeriesDefinition]] = field(default_factory=dict)
    waits_because: str = NOT_LOOKED_AT
    """Wait reason for jobs that the scheduler has not examined yet."""
    starts: Mapping[str, float] = field(default_factory=dict)
    """Predicted starts of queued jobs, in seconds since the epoch (``api.jobs.estimates``)."""

    @classmethod
    def load(
        cls,
        database: Database,
        jobs: Sequence[JobRow],
        starts: Mapping[str, float] = NONE,
    ) -> JobRelations:
        """Load the related rows of these jobs."""
        # A job that was never placed has no related rows, like most jobs of a long queue.
        ids = [job.id for job in jobs if job.attempt_count]
        unseen = any(is_unseen(job) for job in jobs)
        if not ids and not unseen:
            return cls(starts=starts)
        with database.read_jobs() as session:
            newest = attempts.newest(session, ids) if ids else {}
            because = waits_because(nodes.largest_ever(session)) if unseen else NOT_LOOKED_AT
        found = cls(newest, waits_because=because, starts=starts)
        return found.with_series(database, ids) if ids else found

    def with_series(self, database: Database, job_ids: Sequence[str]) -> JobRelations:
        """Return a copy with the rows of the series database of some jobs."""
        with database.read_series() as session:
            return replace(
                self,
                progress=series.progress(session, job_ids),
                latest=series.latest(session, job_ids),
                definitions=definitions.of_jobs(session, job_ids),
            )


def starts_of(estimates: Estimates, marks: Sequence[PageMark]) -> Mapping[str, float]:
    """Return the predicted starts of the queued jobs, where known."""
    return estimates.starts() if any(mark.is_queued for mark in marks) else NONE


def is_unseen(job: JobRow) -> bool:
    """Return whether a queued job has no wait reason of the scheduler yet."""
    return job.state is JobState.QUEUED and job.wait_reason is None


def waits_because(largest: int, lacking: str = "") -> str:
    """Return the wait reason of a job that the scheduler has not examined yet.

    Parameters
    ----------
    largest : int
        Largest number of devices that were ever registered together.
    lacking : str
        What the job needs and no registered node offers, in words.
    """
    if not largest:
        return NO_NODE
    return no_node_offers(lacking) if lacking else NOT_LOOKED_AT


def no_node_offers(lacking: str) -> str:
    """Return the warning about names that no registered node offers."""
    return f"no node that is registered offers {lacking}"


def job_views(
    database: Database,
    jobs: Sequence[JobRow],
    starts: Mapping[str, float] = NONE,
    *,
    among: Within,
) -> list[JobView]:
    """Return views of the jobs, in the same order, for a reader of the projects ``among``."""
    relations = JobRelations.load(database, jobs, starts)
    reasons = [job.wait_reason for job in jobs if job.state is JobState.QUEUED]
    if among.projects is None or not any(reasons):
        return [job_view(job, relations) for job in jobs]
    with database.read_jobs() as session:
        mentions = Mentions(session, reasons, among=among)
    return [job_view(job, relations, mentions) for job in jobs]


def job_view(job: JobRow, relations: JobRelations, mentions: Mentions | None = None) -> JobView:
    """Return the view of a job; ``mentions`` hides jobs that a reason names from its reader."""
    plan = None if job.plan is None else BatchPlan.model_validate(job.plan)
    attempt = relations.attempts.get(job.id)
    waits = None
    if job.state is JobState.QUEUED:
        waits = job.wait_reason or relations.waits_because
        waits = waits if mentions is None else mentions.text(waits)
    view = JobView(
        id=job.id,
        name=job.name,
        project=job.project,
        kind=_kind(job.kind),
        state=job.state,
        reason=waits or job.reason,
        spec=job.document,
        plan=plan,
        plan_sentence=None if plan is None else plan.sentence(),
        progress=None,
        attempt=None if attempt is None else attempt_view(attempt),
        queue=None
        if waits is None or job.wait_position is None
        else QueuePlace(
            position=job.wait_position,
            reason=waits,
            code=_CODES.get(job.wait_code or ""),
            facts=readable_facts(job.wait_facts or {}, mentions),
            estimated_start=moment_or_none(_start(job, relations)),
        ),
        limit=time_limit(job.timeout_seconds, job.timeout_source),
        intent=job.intent,
        stop_grace=None if job.stop_grace is None else Grace.model_validate(job.stop_grace),
        outcome=None if job.outcome is None else Outcome.stored(job.outcome),
        priority=job.priority,
        labels=labels_of(job),
        note=job.note,
        starred=job.starred,
        owner=job.actor,
        created_at=moment(job.created_at),
        started_at=moment_or_none(job.started_at),
        finished_at=moment_or_none(job.finished_at),
        deleting=job.deleting_at is not None,
        version=job.version,
    )
    return with_progress(view, relations)


def with_progress(view: JobView, relations: JobRelations) -> JobView:
    """Return a copy with the progress of the job."""
    return view.model_copy(update={"progress": _progress(view, relations)})


def _start(job: JobRow, relations: JobRelations) -> float | None:
    """Return the predicted start of a queued job. A hold names its own."""
    held: float | None = (job.wait_facts or {}).get("starts_at")
    return relations.starts.get(job.id) if held is None else held


def time_limit(seconds: float | None, source: str | None) -> TimeLimit | None:
    """Return the view of a job's time limit."""
    if seconds is None:
        return None
    known = source if source in set(LimitSource) else None
    return TimeLimit.model_validate({"seconds": seconds, "source": known})


def readable_facts(facts: Mapping[str, Any], mentions: Mentions | None) -> dict[str, Any]:
    """Return the facts of a reason, without a job that their reader may not read."""
    if mentions is None or "job" not in facts:
        return dict(facts)
    return {**facts, "job": mentions.job_id(facts["job"])}


def job_tag(job: JobRow | PageMark, batches: int) -> tuple[object, ...]:
    """Return the parts of a job's entity tag: at least one changes whenever the response may.

    ``batches`` is the number of stored batches of its points and log lines.
    """
    return job.id[-12:], job.version, batches


def _progress(job: JobView, relations: JobRelations) -> Progress | None:
    row = relations.progress.get(job.id)
    if row is None or not row.attempt:
        return None  # no row, or log lines only
    latest, plan = relations.latest.get(job.id, {}), job.plan
    steps = None if plan is None else plan.steps
    step = max(row.step, _ended_at(job))
    fraction = None if not steps else min(1.0, step / steps)
    return Progress(
        step=step,
        steps=steps,
        samples=None if plan is None else step * plan.batch_size,
        fraction=fraction,
        eta_seconds=seconds_left(row, plan, latest.get(THROUGHPUT))
        if job.state is JobState.RUNNING
        else None,
        latest=dict(latest),
        main=main_series(latest, relations.definitions.get(job.id, {})),
    )


def _ended_at(job: JobView) -> int:
    """Return the step at which a job succeeded, else 0.

    The points of its last steps may be missing after a restored backup.
    """
    if job.state is not JobState.SUCCEEDED or job.outcome is None:
        return 0
    return job.outcome.last_step or 0


def attempt_view(attempt: AttemptRow) -> AttemptView:
    return AttemptView(
        number=attempt.number,
        state=attempt.state,
        nodes=attempt.nodes,
        world_size=attempt.world_size,
        plan_sentence=None
        if attempt.plan is None
        else BatchPlan.model_validate(attempt.plan).sentence(),
        outcome=None if attempt.outcome is None else Outcome.stored(attempt.outcome),
        created_at=moment(attempt.created_at),
        running_at=moment_or_none(attempt.running_at),
        ended_at=moment_or_none(attempt.ended_at),
    )


def event_view(event: EventRow, mentions: Mentions) -> EventView:
    return EventView(
        id=event.id,
        at=moment(event.at),
        kind=event.kind,
        attempt=event.attempt,
        actor=event.actor,
        message=None if event.message is None else mentions.text(event.message),
        data=event.data,
    )


def checkpoint_view(checkpoint: CheckpointRow, blobs: BlobStore, *, best: bool) -> CheckpointView:
    """Return the view of a checkpoint.

    ``location`` is a path or URL for users, not a key of the store.
    """
    return CheckpointView(
        step=checkpoint.step,
        attempt=checkpoint.attempt,
        bytes=checkpoint.bytes,
        sha256=checkpoint.sha256,
        final=checkpoint.final,
        value=checkpoint.value,
        best=best,
        created_at=moment(checkpoint.created_at),
        location=blobs.location(checkpoint.location),
    )


def node_view(node: NodeRow, mentions: Mentions, *, now: float, lease_seconds: float) -> NodeView:
    """Return the view of a node.

    ``now`` and the node's last heartbeat are times of the database's clock. ``mentions`` knows the
    jobs of :func:`jobs_of`.
    """
    devices = [device for device in node.devices if device.present]
    at = node.quarantined_at
    why = node.drain_reason if at is None else node.quarantine
    return NodeView(
        name=node.name,
        state=node_state(node, now=now, lease_seconds=lease_seconds),
        reason=None if why is None else mentions.text(why),
        since=moment_or_none(node.drained_at if at is None else at),
        drained_by=node.drained_by if at is None else None,
        seen_at=moment(node.seen_at),
        devices=[
            DeviceView(
                index=device.index,
                kind=device.kind,
                type=device.type,
                memory_bytes=device.memory_bytes,
                job_id=mentions.job_id(device.job_id),
                held=not device.free,
                free_since=moment_or_none(device.free_since) if device.free else None,
            )
            for device in devices
        ],
        devices_free=sum(device.free for device in devices),
        version=node.version,
        offers=[name for name in node.offers if name != PAUSES],
    )


def jobs_of(rows: Sequence[NodeRow]) -> Iterator[str | None]:
    """Yield all texts and ids that the views of nodes have of jobs."""
    for row in rows:
        yield from (row.quarantine, row.drain_reason)
        yield from (device.job_id for device in row.devices)


def node_state(node: NodeRow, *, now: float, lease_seconds: float) -> NodeState:
    """Return the state of a node.

    A node without a heartbeat for the length of a lease is lost, draining or not: its jobs are
    being placed elsewhere. A node whose agent was stopped in an orderly way is leaving, until it is
    lost or an agent is back.
    """
    if nodes.is_lost(node.seen_at, now=now, lease_seconds=lease_seconds):
        return "lost"
    if node.left_at is not None and node.left_at >= node.seen_at:
        return "leaving"
    if node.quarantined_at is not None:
        return "quarantined"
    return "draining" if node.draining else "ready"


def moment(seconds: float) -> datetime:
    """Convert seconds since the epoch to a UTC datetime."""
    return datetime.fromtimestamp(seconds, UTC)


def moment_or_none(seconds: float | None) -> datetime | None:
    """Convert as :func:`moment`; None stays None."""
    return None if seconds is None else moment(seconds)


def _kind(kind: str) -> Literal["train", "script"]:
    return "train" if kind == "train" else "script"
