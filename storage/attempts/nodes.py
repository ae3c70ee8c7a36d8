"""Nodes and their devices, as their agents describe them, and the nodes' failures.

A node's failures are separate rows: the end of an attempt adds or deletes some without contention
with the heartbeats, which write the node's row. Each reconcile cycle evaluates them for quarantine
before it places jobs.

Not here: holders of devices (``storage.attempts.attempts``), placement
(``domain.scheduling.decide``), and the rule of quarantine (``domain.life.quarantine``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, delete, func, select, update
from sqlalchemy.orm import Session, joinedload, selectinload

from lockstep.domain.kinds import offers as offers_of_nodes
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.life.quarantine import NodeFailure
from lockstep.storage.attempts import events
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.dialects import changed, run, table_of, upsert, write
from lockstep.storage.db.tables import AssignmentRow, DeviceRow, NodeFailureRow, NodeRow

ACTOR: Final = "lockstep"
"""Actor of a quarantine in a job's events."""
FAILURES_SECONDS: Final = 86_400.0
"""A failure older than this counts no more."""
FAILURES_MAX: Final = 1_000
"""Limit of failures that one query reads, the newest."""
_NODES: Final = table_of(NodeRow)
EVER: Final = (
    select(func.count())
    .select_from(table_of(DeviceRow).join(_NODES))
    .where(_NODES.c.removed_at.is_(None))
)
"""Number of all devices that were ever registered, without those of removed nodes."""
_NOT_DRAINED: Final = {"drain_reason": None, "drained_by": None, "drained_at": None}


@dataclass(frozen=True)
class DeviceInfo:
    """One device, as an agent found it."""

    index: int
    kind: str
    """``cuda`` or ``cpu``."""
    type: str
    """Name as in ``resources.gpu_type``: ``NVIDIA H200``, ``cpu``."""
    memory_bytes: int | None = None


def register(
    session: Session,
    name: str,
    devices: Sequence[DeviceInfo],
    *,
    version: str,
    boot_id: str,
    offers: Sequence[str] = (),
) -> None:
    """Write a node and its devices as they are now; a node that is draining continues draining.

    Parameters
    ----------
    session : Session
    name : str
    devices : sequence of DeviceInfo
        All of them. One that is registered and missing here gets no work until it is back.
    version : str
        Of the agent.
    boot_id : str
        ``/proc/sys/kernel/random/boot_id``.
    offers : sequence of str
        Names of ``domain.kinds.offers``.
    """
    described = {
        "version": version,
        "boot_id": boot_id,
        "offers": list(offers),
        "seen_at": db_now(),
        "left_at": None,
        "removed_at": None,
    }
    node = upsert(session, NodeRow).values(
        name=name, draining=False, registered_at=db_now(), **described
    )
    write(session, node.on_conflict_do_update(index_elements=["name"], set_=described))
    indices = [device.index for device in devices]
    gone = update(DeviceRow).where(DeviceRow.node_name == name, DeviceRow.index.not_in(indices))
    write(session, gone.values(present=False))
    for device in devices:
        found = {
            "kind": device.kind,
            "type": device.type,
            "memory_bytes": device.memory_bytes,
            "present": True,
        }
        row = upsert(session, DeviceRow).values(node_name=name, index=device.index, **found)
        write(session, row.on_conflict_do_update(index_elements=["node_name", "index"], set_=found))


def touch(session: Session, name: str) -> bool:
    """Store a node's heartbeat; return False if the node is not registered."""
    return (
        changed(session, update(NodeRow).where(NodeRow.name == name).values(seen_at=db_now())) == 1
    )


def is_registered(session: Session, name: str) -> bool:
    """Return whether the database has a node of this name."""
    found = select(NodeRow.name).where(NodeRow.name == name, is_there())
    return session.scalars(found).one_or_none() is not None


def is_there() -> ColumnElement[bool]:
    """Condition on a node's row: no operator has removed it."""
    return NodeRow.removed_at.is_(None)


def leave(session: Session, name: str) -> None:
    """Mark a node as leaving: it gets no more work until the next heartbeat of an agent.

    An agent that still ends its jobs repeats this after each heartbeat. The mark is a time, not a
    flag: an older agent, which does not clear it, must still get work.
    """
    write(session, update(NodeRow).where(NodeRow.name == name).values(left_at=db_now()))


def is_leaving() -> ColumnElement[bool]:
    """Condition on a node's row: its agent was stopped, without a heartbeat since."""
    return and_(NodeRow.left_at.is_not(None), NodeRow.left_at >= NodeRow.seen_at)


def exclusion(session: Session, name: str) -> dict[str, Any] | None:
    """Return why a node gets no work, and lock it; None if it is not registered."""
    found = select(NodeRow.draining, NodeRow.drain_reason, NodeRow.quarantine)
    found = found.where(NodeRow.name == name, is_there())
    row = session.execute(found.with_for_update()).one_or_none()
    return None if row is None else dict(row._mapping)


def set_draining(
    session: Session, name: str, draining: bool, *, reason: str | None = None, by: str | None = None
) -> bool:
    """Drain a node for a reason, or end its drain; running jobs continue.

    Return False if it is not registered.
    """
    values: dict[str, Any] = {"draining": draining, **_NOT_DRAINED}
    if draining:
        values |= {"drain_reason": reason, "drained_by": by, "drained_at": db_now()}
    node = update(NodeRow).where(NodeRow.name == name, is_there())
    return changed(session, node.values(values)) == 1


def resume(session: Session, name: str) -> bool:
    """Resume a node that was drained or quarantined, and delete its failures.

    Return False if it is not registered.
    """
    ready = {"draining": False, "quarantine": None, "quarantined_at": None, **_NOT_DRAINED}
    node = update(NodeRow).where(NodeRow.name == name, is_there())
    if changed(session, node.values(ready)) == 0:
        return False
    forgive(session, name)
    return True


def quarantine(session: Session, name: str, why: str) -> bool:
    """Quarantine a node; running jobs continue.

    Return False if it is quarantined already, or not registered.

    Each job that it failed gets one event: the fault may not have been the job's own.
    """
    sound = update(NodeRow).where(NodeRow.name == name, NodeRow.quarantined_at.is_(None))
    if changed(session, sound.values(quarantine=why, quarantined_at=db_now())) == 0:
        return False
    failed = select(NodeFailureRow.job_id).where(NodeFailureRow.node_name == name).distinct()
    # In order of their ids: adding an event locks the job's row.
    for job_id in session.scalars(failed.order_by(NodeFailureRow.job_id)).all():
        events.add(
            session,
            job_id=job_id,
            attempt=None,
            kind="node_quarantined",
            message=f"node {name}, where it failed, is quarantined: {why}",
            actor=ACTOR,
            data={"node": name, "why": why},
        )
    return True


def blame(session: Session, name: str, job_id: str, reason: Reason) -> None:
    """Note that a node failed a job for a reason that may be its own."""
    row = upsert(session, NodeFailureRow).values(
        node_name=name, job_id=job_id, reason=reason.value, at=db_now()
    )
    write(
        session,
        row.on_conflict_do_update(
            index_elements=["node_name", "job_id", "reason"], set_={"at": db_now()}
        ),
    )


def forgive(session: Session, name: str) -> None:
    """Delete a node's failures: an attempt succeeded there, or a user resumed the node."""
    write(session, delete(NodeFailureRow).where(NodeFailureRow.node_name == name))


def failures(session: Session) -> list[NodeFailure]:
    """Return nodes' recent failures without a success since, newest first."""
    recent = NodeFailureRow.at > db_now() - FAILURES_SECONDS
    known = NodeFailureRow.reason.in_(
        [reason.value for reason in Reason]
    )  # others are a newer version's
    statement = (
        select(NodeFailureRow)
        .where(recent, known)
        .order_by(NodeFailureRow.at.desc())
        .limit(FAILURES_MAX)
    )
    return [
        NodeFailure(row.node_name, row.job_id, Reason(row.reason), row.at)
        for row in session.scalars(statement)
    ]


def quarantined(session: Session) -> set[str]:
    """Names of the nodes that are quarantined."""
    return set(session.scalars(select(NodeRow.name).where(NodeRow.quarantined_at.is_not(None))))


def all_nodes(session: Session) -> list[NodeRow]:
    """Return every node by name, with its devices and their holders, in two statements.

    A device that disappeared is among them, with ``present`` false.
    """
    return list(session.scalars(_with_devices().where(is_there()).order_by(NodeRow.name)))


class Marks(NamedTuple):
    """Everything that :func:`all_nodes` shows, as plain rows."""

    nodes: list[Row[Any]]
    devices: list[Row[Any]]


def is_lost(seen_at: float, *, now: float, lease_seconds: float) -> bool:
    """Return whether the last call of a node is older than a lease."""
    return now - seen_at > lease_seconds


def marks(session: Session) -> Marks:
    """Return the version mark of nodes and devices."""
    node = (
        NodeRow.name,
        NodeRow.seen_at,
        NodeRow.version,
        NodeRow.offers,
        NodeRow.draining,
        NodeRow.drain_reason,
        NodeRow.drained_by,
        NodeRow.drained_at,
        NodeRow.quarantine,
        NodeRow.quarantined_at,
        NodeRow.left_at,
    )
    device = (
        DeviceRow.node_name,
        DeviceRow.index,
        DeviceRow.kind,
        DeviceRow.type,
        DeviceRow.memory_bytes,
        DeviceRow.free_since,
    )
    held = select(*device, DeviceRow.present, AssignmentRow.job_id).outerjoin(
        AssignmentRow, AssignmentRow.id == DeviceRow.assignment_id
    )
    return Marks(
        list(session.execute(select(*node).where(is_there()).order_by(NodeRow.name))),
        list(session.execute(held.order_by(DeviceRow.node_name, DeviceRow.index))),
    )


def get(session: Session, name: str) -> NodeRow:
    """A node that is registered, as ``all_nodes`` has it."""
    return session.scalars(_with_devices().where(NodeRow.name == name)).one()


def _with_devices() -> Select[NodeRow]:
    devices = selectinload(NodeRow.devices).options(joinedload(DeviceRow.assignment))
    return select(NodeRow).options(devices).execution_options(populate_existing=True)


def largest_ever(session: Session) -> int:
    """Devices of all nodes together, counting those that have disappeared since.

    0 when none ever registered.

    A job that asks for more can never have been placed here; one that asks for less may wait for a
    node to come back.
    """
    return int(run(session, EVER, {}).scalar_one())


def lacking(session: Session, needs: Collection[str]) -> str:
    """Return what no registered node offers, in words; empty if one offers all, or if none is."""
    if not needs:
        return ""
    registered = select(NodeRow.offers).where(is_there())
    found = [frozenset(offered) for offered in session.scalars(registered)]
    return offers_of_nodes.lacking(frozenset(needs), found) if found else ""


def any_ever(connection: Connection) -> bool:
    """Return whether a node with devices was ever registered."""
    return connection.execute(EVER).scalar_one() > 0
