"""Reads and repairs of a reconcile cycle, in a few statements independent of the number of rows.

A cycle runs every two seconds and reads the whole queue and all nodes: rows with specs and objects
with relations would take most of a second at ten thousand jobs.

Not here: decisions (``domain.placement.decide``), attempts (``storage.attempts.attempts``), and the
lease (``storage.control.scheduler_lease``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from lockstep.domain.life.lifecycle import AssignmentState, JobState
from lockstep.domain.life.timings import Timings
from lockstep.domain.placement.decide import nodes_asked
from lockstep.domain.placement.requests import Node, PlacementRequest
from lockstep.storage.attempts.endings import LIVE
from lockstep.storage.attempts.nodes import is_leaving
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.dialects import changed
from lockstep.storage.db.tables import AssignmentRow, AttemptRow, DeviceRow, JobRow, NodeRow


class QueuedJob(NamedTuple):
    """Queued job, as a reconcile cycle reads it."""

    id: str
    priority: int
    created_at: float
    devices: int
    node_count: int | None
    device_type: str | None
    avoid_nodes: list[str]
    not_before: float
    attempt_count: int
    wait_position: int | None
    wait_reason: str | None

    def request(self) -> PlacementRequest:
        """Request to the placement for this job."""
        return PlacementRequest(
            job_id=self.id,
            priority=self.priority,
            created_at=self.created_at,
            devices=self.devices,
            nodes=nodes_asked(self.node_count),
            device_type=self.device_type,
            avoid=frozenset(self.avoid_nodes),
            not_before=self.not_before,
        )


def queue(session: Session) -> list[QueuedJob]:
    """Every queued job, in no order."""
    columns = [getattr(JobRow, name) for name in QueuedJob._fields]
    return [
        QueuedJob(*row)
        for row in session.execute(select(*columns).where(JobRow.state == JobState.QUEUED))
    ]


def cluster(session: Session, *, lease_seconds: float) -> list[Node]:
    """Return every node for the placement.

    Ready if its heartbeat is within a lease and it is not draining, quarantined or leaving.
    """
    types: dict[str, dict[int, str]] = defaultdict(dict)
    free: dict[str, set[int]] = defaultdict(set)
    devices = select(DeviceRow.node_name, DeviceRow.index, DeviceRow.type, DeviceRow.assignment_id)
    for name, index, type_, holder in session.execute(devices.where(DeviceRow.present)):
        types[name][index] = type_
        if holder is None:
            free[name].add(index)
    alive = (NodeRow.seen_at > db_now() - lease_seconds).label("alive")
    off = or_(NodeRow.draining, NodeRow.quarantined_at.is_not(None), is_leaving()).label("off")
    nodes = session.execute(select(NodeRow.name, off, alive).order_by(NodeRow.name))
    return [
        Node(name, types[name], frozenset(free[name]), ready=bool(alive_) and not off_)
        for name, off_, alive_ in nodes
    ]


class HeldDevice(NamedTuple):
    """A device that is not free."""

    node_name: str
    device_index: int
    job_id: str
    is_live: bool
    """False when the attempt has ended, and is only being cleared away."""


def held(session: Session) -> list[HeldDevice]:
    """Every device that is held, and by which job."""
    statement = (
        select(
            DeviceRow.node_name,
            DeviceRow.index,
            AssignmentRow.job_id,
            AssignmentRow.state.in_(LIVE),
        )
        .join(AssignmentRow, AssignmentRow.id == DeviceRow.assignment_id)
        .where(DeviceRow.present)
    )
    return [
        HeldDevice(name, index, job_id, bool(live))
        for name, index, job_id, live in session.execute(statement)
    ]


def plans(session: Session, job_ids: Collection[str]) -> dict[str, dict[str, Any]]:
    """The plans of those of these jobs that run and have one."""
    statement = select(JobRow.id, JobRow.plan).where(
        JobRow.id.in_(job_ids), JobRow.state == JobState.RUNNING
    )
    return {job_id: plan for job_id, plan in session.execute(statement) if plan is not None}


def spare(session: Session, *, lease_seconds: float) -> int:
    """Extend the lease of every live assignment to at least a whole lease from now.

    Return the number of changes.

    For the time after an outage of the control plane: no agent could renew, and none may be
    declared lost for that. The rows are changed, so it holds for every scheduler and across
    restarts. A node's own fence does not move, so only the service waits longer.
    """
    until = db_now() + lease_seconds
    statement = update(AssignmentRow).where(
        AssignmentRow.state.in_(LIVE), AssignmentRow.lease_expires_at < until
    )
    return changed(session, statement.values(lease_expires_at=until))


def bring_back(session: Session, timings: Timings) -> int:
    """After the database's clock was set back, shorten waits that exceed their maximum.

    Return the number of changes.

    Otherwise a dead node's lease would last for as long as the clock went back, and a backoff could
    take hours. A shortened wait lasts its maximum once more, so nothing happens too early.
    """
    now_ = db_now()
    # Concurrent writes may be slightly later than this statement's now.
    slack = timings.heartbeat_seconds
    leases = update(AssignmentRow).where(
        AssignmentRow.state.in_(LIVE),
        AssignmentRow.lease_expires_at > now_ + timings.lease_seconds + slack,
    )
    longest = max(timings.backoff_max_seconds, timings.replace_after_seconds)
    backoffs = update(JobRow).where(
        JobRow.state == JobState.QUEUED, JobRow.not_before > now_ + longest + slack
    )
    seen = update(NodeRow).where(NodeRow.seen_at > now_ + slack)
    return sum(
        changed(session, statement)
        for statement in (
            leases.values(lease_expires_at=now_ + timings.lease_seconds),
            backoffs.values(not_before=now_ + longest),
            seen.values(seen_at=now_),
        )
    )


def unclaimed(session: Session, *, older_than_seconds: float) -> list[tuple[str, str]]:
    """Return (assignment id, node name) of assignments that are unclaimed for this long."""
    statement = select(AssignmentRow.id, AssignmentRow.node_name).where(
        AssignmentRow.state == AssignmentState.ASSIGNED,
        AssignmentRow.created_at < db_now() - older_than_seconds,
    )
    return [(assignment_id, name) for assignment_id, name in session.execute(statement)]


class EndedAssignment(NamedTuple):
    """An assignment that has ended and still holds its devices."""

    assignment_id: str
    job_id: str
    attempt: int


def ended(session: Session) -> list[EndedAssignment]:
    """Return every assignment whose stream may have to be sealed by another program than its node.

    A node seals before it releases, and an assignment that was never claimed had no writer:
    released ones are done.
    """
    statement = (
        select(AssignmentRow.id, AssignmentRow.job_id, AttemptRow.number)
        .join(AttemptRow, AttemptRow.id == AssignmentRow.attempt_id)
        .where(AssignmentRow.state == AssignmentState.ENDED)
    )
    return [EndedAssignment(*row) for row in session.execute(statement)]
