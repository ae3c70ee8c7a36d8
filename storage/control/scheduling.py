"""Reads and repairs of a reconcile cycle, in a few statements independent of the number of rows.

Not here: the rows of a decision (``storage.control.snapshots``), attempts
(``storage.attempts.attempts``), and the lease (``storage.control.scheduler_lease``).
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from lockstep.domain.life.lifecycle import AssignmentState, JobState
from lockstep.domain.life.timings import Timings
from lockstep.storage.attempts.endings import LIVE
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.dialects import changed
from lockstep.storage.db.tables import AssignmentRow, AttemptRow, JobRow, NodeRow


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
    """Shorten waits that exceed their maximum: the database's clock was set back.

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
