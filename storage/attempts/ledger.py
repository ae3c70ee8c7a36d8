"""Ledger: one row about the devices of each released assignment.

A row is written once, when the attempt has ended: the assignment's id is the key, and
``accounted_at`` of the assignment is set in the same transaction. So a reader finds each use either
in the ledger or among the assignments without ``accounted_at``.

Not here: sums over rows (``storage.control.usage``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from lockstep.domain.life.held_time import AssignmentTimes, StepRange, held_time, repeated_part
from lockstep.domain.life.lifecycle import AttemptState
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.dialects import for_each, run, write
from lockstep.storage.db.people_tables import LedgerRow
from lockstep.storage.db.tables import AssignmentRow, AttemptRow, DeviceRow, JobRow

StepsOf = Mapping[tuple[str, int], StepRange]
"""Steps by job and attempt: ``storage.series.streams.steps``."""
BATCH: Final = 500
"""Rows of one cycle: other writers must get in between."""
UNKNOWN_TYPE: Final = "unknown"


class Released(NamedTuple):
    """A released assignment that is not in the ledger."""

    assignment_id: str
    job_id: str
    kind: str
    job_name: str
    attempt: int
    project: str
    actor: str
    node_name: str
    device_type: str
    device_indices: list[int]
    placed_at: float
    running_at: float | None
    ended_at: float
    attempt_ended_at: float
    released_at: float

    def row(self, steps: StepsOf) -> dict[str, Any]:
        """Return its row in the ledger."""
        released_at = max(self.placed_at, self.released_at)
        # A node of a gang may end before the attempt, and learns later than others of its end.
        ended_at = min(self.ended_at, self.attempt_ended_at)
        times = AssignmentTimes(self.placed_at, self.running_at, ended_at, released_at)
        earlier = [
            steps[self.job_id, number].last
            for number in range(1, self.attempt)
            if (self.job_id, number) in steps
        ]
        again = repeated_part(
            self.kind, steps.get((self.job_id, self.attempt)), max(earlier, default=None)
        )
        devices = len(self.device_indices)
        return {
            "assignment_id": self.assignment_id,
            "job_id": self.job_id,
            "job_name": self.job_name,
            "attempt": self.attempt,
            "project": self.project,
            "actor": self.actor,
            "node_name": self.node_name,
            "device_type": self.device_type,
            "devices": devices,
            "placed_at": self.placed_at,
            "released_at": released_at,
            **held_time(times, devices, again)._asdict(),
        }


def due(session: Session, *, job_id: str | None = None) -> list[Released]:
    """Return released assignments that are not in the ledger.

    Parameters
    ----------
    session : Session
    job_id : str, optional
        All of this job. Without it, the first :data:`BATCH` of all jobs.
    """
    part = AssignmentRow
    statement = (
        select(
            part.id,
            part.job_id,
            JobRow.kind,
            JobRow.name,
            AttemptRow.number,
            JobRow.project,
            JobRow.actor,
            part.node_name,
            func.coalesce(DeviceRow.type, UNKNOWN_TYPE),
            part.device_indices,
            part.created_at,
            AttemptRow.running_at,
            part.ended_at,
            AttemptRow.ended_at,
            part.released_at,
        )
        .join(AttemptRow, AttemptRow.id == part.attempt_id)
        .join(JobRow, JobRow.id == part.job_id)
        .outerjoin(
            DeviceRow,
            (DeviceRow.node_name == part.node_name)
            & (DeviceRow.index == part.device_indices[0].as_integer()),
        )
        .where(
            part.accounted_at.is_(None),
            part.released_at.is_not(None),
            AttemptRow.state == AttemptState.ENDED,
        )
    )
    if job_id is not None:
        statement = statement.where(part.job_id == job_id)
    else:
        statement = statement.order_by(part.released_at).limit(BATCH)
    return [Released._make(row) for row in session.execute(statement)]


def add(session: Session, released: Sequence[Released], steps: StepsOf) -> None:
    """Add rows of released assignments, but for those that are in the ledger already."""
    if not released:
        return
    # In one order: two writers of the same rows wait for each other without a deadlock.
    ids = sorted(one.assignment_id for one in released)
    rows = {one.assignment_id: one.row(steps) for one in released}
    run(session, _ADDED, [rows[each] for each in ids])
    accounted = update(AssignmentRow).where(AssignmentRow.id.in_(ids))
    write(session, accounted.values(accounted_at=db_now()))


_ADDED: Final = for_each(LedgerRow, lambda insert: insert.on_conflict_do_nothing())
