"""Memory of devices, and the forecasts that earlier attempts left.

Not here: when these are asked for (``api.jobs.forecasts``).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from lockstep.domain.rights import Within
from lockstep.storage.db.tables import AssignmentRow, AttemptRow, DeviceRow, EventRow, JobRow

LOOKED_AT_MAX: Final = 200
"""Newest attempts that are searched for a forecast: their specs are read, a few kB each."""
_SAME: Final = (
    "task",
    "task_args",
    "precision",
    "strategy",
    "parallel",
    "activation_checkpointing",
    "compile",
)
"""Fields of ``train`` that decide how much memory a micro-batch takes; of the optimizer it is the
name."""


class Capacity(NamedTuple):
    """Memory of one device type."""

    device_type: str
    memory_bytes: int | None
    """Memory of the smallest such device; None if a node does not report it."""


class Earlier(NamedTuple):
    """A forecast that an earlier attempt left."""

    job_id: str
    micro_batch_size: int
    memory: dict[str, Any]
    """``domain.training.memory.MemoryForecast``."""
    measured_bytes: float | None


def capacity(session: Session, *, device_type: str | None, nodes: list[str]) -> Capacity | None:
    """Return the device type with the least memory among those that a job may get.

    None if there is none.

    Parameters
    ----------
    session : Session
    device_type : str or None
        Requested type; None takes any.
    nodes : list of str
        Nodes on which it would be placed now; empty means any.
    """
    statement = select(
        DeviceRow.type,
        func.min(DeviceRow.memory_bytes),
        func.count() - func.count(DeviceRow.memory_bytes),
    )
    statement = statement.where(DeviceRow.present).group_by(DeviceRow.type)
    if device_type is not None:
        statement = statement.where(DeviceRow.type == device_type)
    if nodes:
        statement = statement.where(DeviceRow.node_name.in_(nodes))
    found = [
        Capacity(type_, None if unknown else least)
        for type_, least, unknown in session.execute(statement)
    ]
    return min(
        found,
        key=lambda one: (one.memory_bytes is None, one.memory_bytes or 0, one.device_type),
        default=None,
    )


def earlier(
    session: Session,
    spec: dict[str, Any],
    *,
    world_size: int,
    device_type: str,
    among: Within,
) -> Earlier | None:
    """Return the forecast of the newest attempt with the same task and size on this device type.

    One with the same code is preferred; the code of a task changes more often than its memory.

    Parameters
    ----------
    session : Session
    spec : dict
        The planned job's, with every default filled in.
    world_size : int
    device_type : str
    among : Within
        Projects of the jobs that are searched.
    """
    statement = (
        select(JobRow.id, JobRow.spec, AttemptRow.plan, AttemptRow.number, AttemptRow.id)
        .join(AttemptRow, AttemptRow.job_id == JobRow.id)
        .where(JobRow.kind == "train", AttemptRow.world_size == world_size)
        .order_by(AttemptRow.id.desc())
        .limit(LOOKED_AT_MAX)
    )
    if among.projects is not None:
        statement = statement.where(JobRow.project.in_(sorted(among.projects)))
    others: list[tuple[str, int, str, dict[str, Any]]] = []
    for job_id, ran, plan, number, attempt_id in session.execute(statement):
        if (
            plan is None
            or plan.get("memory") is None
            or not _is_same_size(spec["train"], ran["train"], plan)
        ):
            continue
        found = (job_id, number, attempt_id, plan)
        if ran.get("code") == spec.get("code"):
            others.insert(0, found)
            break
        others.append(found)
    for job_id, number, attempt_id, plan in others:
        if _ran_on(session, attempt_id, device_type):
            measured = _measured(session, job_id, number)
            return Earlier(job_id, plan["micro_batch_size"], plan["memory"], measured)
    return None


def _is_same_size(train: dict[str, Any], ran: dict[str, Any], plan: dict[str, Any]) -> bool:
    if any(train.get(name) != ran.get(name) for name in _SAME):
        return False
    micro = train["batch"]["micro_size"]
    settled = plan.get("micro_batch_size")
    return (
        train["optimizer"]["name"] == ran["optimizer"]["name"]
        and settled is not None
        and micro in {"auto", settled}
    )


def _ran_on(session: Session, attempt_id: str, device_type: str) -> bool:
    statement = (
        select(AssignmentRow.device_indices, DeviceRow.index, DeviceRow.type)
        .join(DeviceRow, DeviceRow.node_name == AssignmentRow.node_name)
        .where(AssignmentRow.attempt_id == attempt_id)
    )
    types = {type_ for indices, index, type_ in session.execute(statement) if index in indices}
    return types == {device_type}


def _measured(session: Session, job_id: str, attempt: int) -> float | None:
    statement = (
        select(EventRow.data)
        .where(EventRow.job_id == job_id, EventRow.attempt == attempt, EventRow.kind == "memory")
        .order_by(EventRow.id.desc())
        .limit(1)
    )
    data = session.scalars(statement).first()
    return None if data is None else data.get("measured_bytes")
