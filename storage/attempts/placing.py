"""Placement of a job: an attempt and its assignments, written in one transaction.

Not here: the choice of devices (``domain.scheduling.decide``), and the attempt afterwards
(``storage.attempts.attempts``).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, Final

import uuid_utils
from sqlalchemy import Double, Row, bindparam, func, not_, select, update
from sqlalchemy.orm import Session

from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.stored import UnreadableSpecError, read_stored_spec
from lockstep.domain.training.plan import plan_of
from lockstep.storage.attempts import transitions
from lockstep.storage.attempts.endings import ACTOR
from lockstep.storage.attempts.nodes import is_leaving
from lockstep.storage.db.clock import db_now, now
from lockstep.storage.db.dialects import run, table_of
from lockstep.storage.db.tables import AssignmentRow, AttemptRow, DeviceRow, NodeRow

Devices = tuple[tuple[str, tuple[int, ...]], ...]
"""(node name, device indices) by node rank, as ``domain.scheduling.state.Start`` has it."""


@dataclass(frozen=True)
class PlacedAssignment:
    """One node's part of an attempt, just written."""

    assignment_id: str
    node_name: str


@dataclass(frozen=True)
class PlacedAttempt:
    """An attempt, just written."""

    attempt_id: str
    job_id: str
    number: int
    assignments: tuple[PlacedAssignment, ...]


def place(
    session: Session,
    job_id: str,
    devices: Devices,
    *,
    lease_seconds: float,
    attempts_before: int | None = None,
) -> PlacedAttempt | None:
    """Start an attempt at a job on these devices: all of it, or nothing.

    1. The job is taken from the queue, if it is still queued, past its backoff, and not to be
       cancelled; and, if ``attempts_before`` is given, had no more attempts meanwhile, because the
       stream of such an attempt may not be sealed.
    2. Its nodes must have a heartbeat within a lease, and be neither draining, quarantined nor
       leaving.
    3. The attempt and one assignment per node are written, each with its token and its lease.
    4. The devices are taken; a device that is held already rolls everything back.

    Two schedulers that place the same job meet at 1, two that want the same device at 4; the second
    finds the row changed in either case.

    Returns
    -------
    PlacedAttempt or None
        None if the race was lost; nothing was written.

    Raises
    ------
    UnreadableSpecError
        If the spec of another version has fields that this one cannot read; nothing was written.
    """
    savepoint = session.begin_nested()
    try:
        placed = _place(
            session, job_id, devices, lease_seconds=lease_seconds, attempts_before=attempts_before
        )
    except UnreadableSpecError:
        savepoint.rollback()
        raise
    if placed is None:
        savepoint.rollback()
    else:
        savepoint.commit()
    return placed


def _place(
    session: Session,
    job_id: str,
    devices: Devices,
    *,
    lease_seconds: float,
    attempts_before: int | None,
) -> PlacedAttempt | None:
    names = [name for name, _indices in devices]
    given = [
        f"{name} ({len(indices)} device{'s' if len(indices) != 1 else ''})"
        for name, indices in devices
    ]
    job_now = transitions.JOBS.c
    as_decided = [] if attempts_before is None else [job_now.attempt_count == attempts_before]
    taken = transitions.take(
        session,
        job_id,
        "place",
        attempt=None,
        reason=f"placed on {', '.join(given)}",
        actor=ACTOR,
        only_if=(job_now.intent.is_(None), job_now.not_before <= db_now(), *as_decided),
        data={"nodes": names},
    )
    if not taken or not _ready(session, names, lease_seconds):
        return None
    job = run(session, _PLACED_JOB, {"of_job": job_id}).one()
    attempt = _write_attempt(session, job, devices, lease_seconds=lease_seconds)
    for assignment in attempt.assignments:
        taken_by = {
            "on_node": assignment.node_name,
            "of_indices": assignment.device_indices,
            "by_assignment": assignment.id,
        }
        if run(session, _TAKEN, taken_by).rowcount != len(assignment.device_indices):
            return None
    parts = tuple(
        PlacedAssignment(assignment.id, assignment.node_name) for assignment in attempt.assignments
    )
    return PlacedAttempt(attempt.id, job_id, attempt.number, parts)


def _ready(session: Session, names: list[str], lease_seconds: float) -> bool:
    ready = run(session, _READY, {"of_names": names, "for_seconds": lease_seconds}).scalar_one()
    return bool(ready == len(set(names)) == len(names))


def _write_attempt(
    session: Session, job: Row[Any], devices: Devices, *, lease_seconds: float
) -> AttemptRow:
    spec = read_stored_spec(job.spec)
    per_node = spec.ranks_per_node()
    ranks = [per_node or len(indices) for _name, indices in devices]
    first_name, first_indices = devices[0]
    kind = run(session, _KIND, {"on_node": first_name, "of_index": first_indices[0]}).scalar_one()
    at = now(session)
    attempt = AttemptRow(
        id=str(uuid_utils.uuid7()),
        job_id=job.id,
        number=job.attempt_count,
        plan=_plan(job, spec, sum(ranks)),
        world_size=sum(ranks),
        node_count=len(devices),
        device_kind=kind,
        rendezvous_host="127.0.0.1" if len(devices) == 1 else first_name,
        created_at=at,
    )
    attempt.assignments = [
        AssignmentRow(
            id=str(uuid_utils.uuid7()),
            job_id=job.id,
            node_name=name,
            node_rank=rank,
            token=secrets.token_hex(16),
            device_indices=list(indices),
            ranks_here=ranks[rank],
            lease_expires_at=at + lease_seconds,
            created_at=at,
        )
        for rank, (name, indices) in enumerate(devices)
    ]
    session.add(attempt)
    session.flush()
    return attempt


def _plan(job: Row[Any], spec: JobSpec, world_size: int) -> dict[str, Any] | None:
    """Return the job's plan, with values of an earlier attempt on as many ranks."""
    if job.plan is not None and job.plan.get("world_size") == world_size:
        settled: dict[str, Any] = job.plan
        return settled
    plan = plan_of(spec, world_size)
    return None if plan is None else plan.model_dump(mode="json")


# --- statements

_DEVICE: Final = table_of(DeviceRow)
_NODE: Final = table_of(NodeRow)
_PLACED_JOB: Final = select(*transitions.JOBS.c["id", "spec", "plan", "attempt_count"]).where(
    transitions.JOBS.c.id == bindparam("of_job")
)
_TAKEN: Final = (
    update(_DEVICE)
    .where(
        _DEVICE.c.node_name == bindparam("on_node"),
        _DEVICE.c.index.in_(bindparam("of_indices", expanding=True)),
        _DEVICE.c.assignment_id.is_(None),
        _DEVICE.c.present,
    )
    .values(assignment_id=bindparam("by_assignment"))
)
_READY: Final = select(func.count()).where(
    _NODE.c.name.in_(bindparam("of_names", expanding=True)),
    _NODE.c.draining.is_(False),
    _NODE.c.quarantined_at.is_(None),
    not_(is_leaving()),
    _NODE.c.seen_at > db_now() - bindparam("for_seconds", type_=Double),
)
_KIND: Final = select(_DEVICE.c.kind).where(
    _DEVICE.c.node_name == bindparam("on_node"), _DEVICE.c.index == bindparam("of_index")
)
