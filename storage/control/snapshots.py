"""Rows of the cluster, as one decision about the queue reads them.

A cycle runs every two seconds and reads the whole queue and all nodes: rows with specs and objects
with relations would take most of a second at ten thousand jobs.

Not here: the decision (``domain.scheduling.decide``), other reads and repairs of a cycle
(``storage.control.scheduling``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from lockstep.domain.errors import LockstepError
from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.life.timings import Timings
from lockstep.domain.people_views import UsageBy
from lockstep.domain.rights import EVERY
from lockstep.domain.scheduling.capacity import LATE_SECONDS
from lockstep.domain.scheduling.decide import nodes_asked
from lockstep.domain.scheduling.state import (
    BudgetAction,
    ClusterNode,
    ClusterState,
    Hold,
    JobRequest,
    Project,
    Running,
    WaitReason,
)
from lockstep.storage.attempts.endings import LIVE
from lockstep.storage.attempts.nodes import is_leaving, is_there
from lockstep.storage.control import usage
from lockstep.storage.db.clock import db_now, now
from lockstep.storage.db.database import Database
from lockstep.storage.db.people_tables import ProjectRow
from lockstep.storage.db.tables import AssignmentRow, AttemptRow, DeviceRow, JobRow, NodeRow
from lockstep.storage.series.remaining import expected_ends

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})
BUDGET_SECONDS: Final = 30 * 86_400.0
"""Time to which a budget applies."""
User = tuple[str, str]
"""Project and name."""
Users = Collection[User]
AverageUse = Callable[[Session, float, float], Mapping[User, float]]


class QueuedJob(NamedTuple):
    """Queued job, as a decision reads it."""

    id: str
    project: str
    actor: str
    priority: int
    created_at: float
    devices: int
    node_count: int | None
    device_type: str | None
    needs: list[str]
    avoid_nodes: list[str]
    not_before: float
    timeout_seconds: float | None
    running_seconds: float
    attempt_count: int
    hold: dict[str, Any] | None
    wait_position: int | None
    wait_reason: str | None

    def request(self, blocked: WaitReason | None = None) -> JobRequest:
        """Return the job as the decision takes it."""
        limit = self.timeout_seconds
        return JobRequest(
            job_id=self.id,
            project=self.project,
            user=self.actor,
            priority=self.priority,
            submitted_at=self.created_at,
            devices=self.devices,
            nodes=nodes_asked(self.node_count),
            device_type=self.device_type,
            needs=frozenset(self.needs),
            avoid=frozenset(self.avoid_nodes),
            not_before=self.not_before,
            blocked=blocked,
            limit_seconds=None if limit is None else max(0.0, limit - self.running_seconds),
            hold=None if self.hold is None else read_hold(self.hold),
        )


def stored_hold(hold: Hold) -> dict[str, Any]:
    """Return what the next decision reads of a hold."""
    return {"since": hold.since, "kind": hold.kind, "nodes": list(hold.nodes)}


def read_hold(stored: Mapping[str, Any]) -> Hold | None:
    """Return a stored hold; None for one of another version: its job holds nothing yet."""
    try:
        return Hold(float(stored["since"]), str(stored["kind"]), tuple(stored["nodes"]))
    except (KeyError, TypeError, ValueError):
        return None


class _DeviceHolder(NamedTuple):
    """Job that has a device."""

    job_id: str
    project: str
    actor: str
    placed_at: float
    running_at: float | None
    timeout_seconds: float | None
    running_seconds: float
    is_live: bool
    """False while an ended attempt is only cleared away."""

    def ends_at(self, at: float) -> float | None:
        """Return the latest end; None without a time limit."""
        if not self.is_live:
            return at
        if self.timeout_seconds is None:
            return None
        # Its decision allowed as much time for the start: the end of a job moves no later.
        began = max(self.placed_at + LATE_SECONDS, self.running_at or 0.0)
        return began + self.timeout_seconds - self.running_seconds


@dataclass(frozen=True)
class ClusterRows:
    """Rows of one moment."""

    at: float
    queue: tuple[QueuedJob, ...]
    nodes: tuple[ClusterNode, ...]
    devices: Mapping[_DeviceHolder, list[tuple[str, int]]]
    """(node name, device index) by the job that has them."""
    projects: Mapping[str, Project]
    usage: Mapping[tuple[str, str], float]
    """Devices in use on average, by project and user; empty where it decides nothing."""

    def state(
        self,
        expected: Mapping[str, float] = _NONE,
        blocked: Mapping[str, WaitReason] = _NONE,
        planned: tuple[JobRequest, ...] = (),
    ) -> ClusterState:
        """Return the rows as input of a decision.

        Parameters
        ----------
        expected : mapping of job id to seconds since the epoch
            Expected ends of running jobs.
        blocked : mapping of job id to WaitReason
            Queued jobs that may not start.
        planned : tuple of JobRequest
            Jobs that are not submitted.
        """
        running = (
            Running(
                job.job_id,
                job.project,
                job.actor,
                tuple(devices),
                ends_at=job.ends_at(self.at),
                expected_at=expected.get(job.job_id) if job.is_live else None,
            )
            for job, devices in self.devices.items()
        )
        queued = (job.request(blocked.get(job.id)) for job in self.queue)
        return ClusterState(
            self.at,
            self.nodes,
            (*queued, *planned),
            tuple(running),
            self.projects,
            self.usage,
        )


def read(
    session: Session,
    timings: Timings,
    *,
    planned_for: Users = (),
    average: AverageUse = usage.average,
) -> ClusterRows:
    """Read queue, nodes, devices, projects, and the use of devices.

    A node is ready if its heartbeat is within a lease and it is not draining, quarantined or
    leaving.

    Parameters
    ----------
    session : Session
    timings : Timings
    planned_for : collection of (project, user), optional
        Owners of jobs that are not submitted.
    average : callable, optional
        Reads the average use of devices.
    """
    at, queued = now(session), tuple(queue(session))
    types: dict[str, dict[int, str]] = defaultdict(dict)
    free: dict[str, set[int]] = defaultdict(set)
    devices: dict[_DeviceHolder, list[tuple[str, int]]] = defaultdict(list)
    for name, index, kind, holder in _devices(session):
        types[name][index] = kind
        if holder is None:
            free[name].add(index)
        else:
            devices[holder].append((name, index))
    nodes = tuple(
        ClusterNode(name, types[name], frozenset(free[name]), is_ready, frozenset(offers))
        for name, is_ready, offers in _nodes(session, timings.lease_seconds)
    )
    users = {(job.project, job.actor) for job in queued} | set(planned_for)
    return ClusterRows(
        at,
        queued,
        nodes,
        devices,
        _projects(session, at),
        # Past use decides between users only.
        average(session, at, timings.half_life_seconds) if len(users) > 1 else {},
    )


def _projects(session: Session, at: float) -> dict[str, Project]:
    """Return the share and the limits of each project."""
    statement = select(
        ProjectRow.name,
        ProjectRow.weight,
        ProjectRow.gpus_max,
        ProjectRow.gpus_per_user_max,
        ProjectRow.budget_gpu_hours,
        ProjectRow.budget_action,
    )
    rows = list(session.execute(statement))
    used: dict[str, float] = {}
    if any(row.budget_gpu_hours is not None for row in rows):
        totals = usage.totals(session, UsageBy.PROJECT, at - BUDGET_SECONDS, at, among=EVERY)
        used = {str(total.name): total.allocated / 3_600 for total in totals}
    return {
        row.name: Project(
            weight=row.weight,
            gpus_max=row.gpus_max,
            gpus_per_user_max=row.gpus_per_user_max,
            budget_hours=row.budget_gpu_hours,
            # A consequence of a newer version holds, too: the strictest one known.
            is_held=row.budget_action not in {None, BudgetAction.WARN},
            used_hours=used.get(row.name, 0.0),
        )
        for row in rows
    }


def queue(session: Session) -> list[QueuedJob]:
    """Return every queued job, in no order."""
    columns = [getattr(JobRow, name) for name in QueuedJob._fields]
    found = session.execute(select(*columns).where(JobRow.state == JobState.QUEUED))
    return [QueuedJob(*row) for row in found]


def _devices(session: Session) -> Iterator[tuple[str, int, str, _DeviceHolder | None]]:
    statement = (
        select(
            DeviceRow.node_name,
            DeviceRow.index,
            DeviceRow.type,
            AssignmentRow.job_id,
            JobRow.project,
            JobRow.actor,
            AssignmentRow.created_at,
            AttemptRow.running_at,
            JobRow.timeout_seconds,
            JobRow.running_seconds,
            AssignmentRow.state.in_(LIVE),
        )
        .outerjoin(AssignmentRow, AssignmentRow.id == DeviceRow.assignment_id)
        .outerjoin(AttemptRow, AttemptRow.id == AssignmentRow.attempt_id)
        .outerjoin(JobRow, JobRow.id == AssignmentRow.job_id)
        .where(DeviceRow.present)
    )
    for name, index, kind, *job in session.execute(statement):
        yield name, index, kind, None if job[0] is None else _DeviceHolder(*job)


def _nodes(session: Session, lease_seconds: float) -> Iterator[tuple[str, bool, list[str]]]:
    is_alive = NodeRow.seen_at > db_now() - lease_seconds
    is_off = or_(NodeRow.draining, NodeRow.quarantined_at.is_not(None), is_leaving())
    statement = select(NodeRow.name, is_alive, is_off, NodeRow.offers).where(is_there())
    for name, alive, off, offers in session.execute(statement.order_by(NodeRow.name)):
        yield name, bool(alive) and not off, offers


def expected(database: Database, rows: ClusterRows) -> dict[str, float]:
    """Return the expected ends of the running jobs, by job id.

    Empty if the series database does not answer: a queue does not wait for it.
    """
    live = {job.job_id for job in rows.devices if job.is_live}
    with database.read_jobs() as session:
        statement = select(JobRow.id, JobRow.plan).where(
            JobRow.id.in_(live), JobRow.state == JobState.RUNNING
        )
        plans = {job_id: plan for job_id, plan in session.execute(statement) if plan is not None}
    try:
        with database.read_series() as session:
            return expected_ends(session, plans)
    except LockstepError:
        return {}
