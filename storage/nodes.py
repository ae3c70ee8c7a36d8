"""Nodes and their devices, as their agents describe them.

Not here: who holds a device (``storage.attempts``), and which node gets what (``domain.placement``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session, joinedload, selectinload

from storage.clock import db_now
from storage.dialects import changed, upsert, write
from storage.tables import DeviceRow, NodeRow


@dataclass(frozen=True)
class DeviceInfo:
    """One device, as an agent found it."""

    index: int
    kind: str
    """``cuda`` or ``cpu``."""
    type: str
    """What ``resources.gpu_type`` names: ``NVIDIA H200``, ``cpu``."""
    memory_bytes: int | None = None


def register(session: Session, name: str, devices: Sequence[DeviceInfo], *, version: str, boot_id: str) -> None:
    """Write a node and its devices as they are now; a node that is draining goes on draining.

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
    """
    described = {"version": version, "boot_id": boot_id, "seen_at": db_now()}
    node = upsert(session, NodeRow).values(name=name, draining=False, registered_at=db_now(), **described)
    write(session, node.on_conflict_do_update(index_elements=["name"], set_=described))
    indices = [device.index for device in devices]
    gone = update(DeviceRow).where(DeviceRow.node_name == name, DeviceRow.index.not_in(indices))
    write(session, gone.values(present=False))
    for device in devices:
        found = {"kind": device.kind, "type": device.type, "memory_bytes": device.memory_bytes, "present": True}
        row = upsert(session, DeviceRow).values(node_name=name, index=device.index, **found)
        write(session, row.on_conflict_do_update(index_elements=["node_name", "index"], set_=found))


def touch(session: Session, name: str) -> bool:
    """Note that a node was heard; False when it is not registered."""
    return changed(session, update(NodeRow).where(NodeRow.name == name).values(seen_at=db_now())) == 1


def set_draining(session: Session, name: str, draining: bool) -> bool:
    """Stop or go on giving a node work; what runs there runs on. False when it is not registered."""
    return changed(session, update(NodeRow).where(NodeRow.name == name).values(draining=draining)) == 1


def all_nodes(session: Session) -> list[NodeRow]:
    """Every node by name, with its devices and who holds them, in two statements.

    A device that disappeared is among them, with ``present`` false.
    """
    devices = selectinload(NodeRow.devices).options(joinedload(DeviceRow.assignment))
    statement = select(NodeRow).order_by(NodeRow.name).options(devices).execution_options(populate_existing=True)
    return list(session.scalars(statement))


def largest_ever(session: Session) -> int:
    """Devices of all nodes together, counting those that have disappeared since: 0 when none ever registered.

    A job that asks for more can never have been placed here; one that asks for less may wait for a node to come back.
    """
    return session.execute(select(func.count()).select_from(DeviceRow)).scalar_one()
