"""Devices that jobs hold, by job: what a person reads at first sight of the cluster.

Not here: the rows of a decision (``storage.control.snapshots``), who held devices earlier
(``storage.control.usage``).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from lockstep.storage.attempts.nodes import is_there
from lockstep.storage.db.dialects import run
from lockstep.storage.db.tables import AssignmentRow, AttemptRow, DeviceRow, JobRow, NodeRow


class Holding(NamedTuple):
    """Devices of one kind that a job holds."""

    job_id: str
    project: str
    owner: str
    attempt: int
    kind: str
    devices: int


_HELD: Final = (
    select(JobRow.id, JobRow.project, JobRow.actor, AttemptRow.number, DeviceRow.kind, func.count())
    .join(AssignmentRow, AssignmentRow.id == DeviceRow.assignment_id)
    .join(AttemptRow, AttemptRow.id == AssignmentRow.attempt_id)
    .join(JobRow, JobRow.id == AssignmentRow.job_id)
    .where(DeviceRow.present)
    .group_by(JobRow.id, JobRow.project, JobRow.actor, AttemptRow.number, DeviceRow.kind)
)
_FREE: Final = (
    select(DeviceRow.node_name, func.count())
    .where(DeviceRow.present, DeviceRow.assignment_id.is_(None))
    .group_by(DeviceRow.node_name)
)
_NODES: Final = select(NodeRow).where(is_there()).order_by(NodeRow.name)


def held(session: Session) -> list[Holding]:
    """Return what each job holds."""
    return [Holding(*row) for row in run(session, _HELD, {})]


def free(session: Session) -> dict[str, int]:
    """Return the number of devices that no job holds, by node."""
    return {row[0]: row[1] for row in run(session, _FREE, {})}


def all_nodes(session: Session) -> list[NodeRow]:
    """Return every node by name, without its devices."""
    return list(session.scalars(_NODES))
