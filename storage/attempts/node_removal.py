"""Removal of a node that is gone for good.

Not here: drains (``storage.attempts.nodes``), the loss of attempts (``storage.attempts.endings``).
"""

from __future__ import annotations

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.lifecycle import AssignmentState
from lockstep.storage.attempts import endings, nodes
from lockstep.storage.db.clock import db_now, now
from lockstep.storage.db.dialects import write
from lockstep.storage.db.tables import AssignmentRow, DeviceRow, NodeRow


def remove(session: Session, name: str, *, lease_seconds: float) -> bool:
    """Remove a lost node from all lists; return False if it is not registered.

    Its ended attempts, which it can confirm no more, are released. Its history stays. An agent that
    returns with this name registers a new node.

    Raises
    ------
    LockstepError
        ``CONFLICT`` after a heartbeat within a lease, or while an attempt has not ended there.
    """
    found = select(NodeRow.seen_at).where(NodeRow.name == name, nodes.is_there())
    seen_at = session.scalars(found.with_for_update()).one_or_none()
    if seen_at is None:
        return False
    at = now(session)
    if not nodes.is_lost(seen_at, now=at, lease_seconds=lease_seconds):
        raise _conflict(
            f"node {name} sent a heartbeat {max(0.0, at - seen_at):.0f} s ago",
            f"Stop its agent, and remove it once it is lost, {lease_seconds:g} s later.",
        )
    parts = select(AssignmentRow.id, AssignmentRow.job_id, AssignmentRow.state).where(
        AssignmentRow.node_name == name, AssignmentRow.state != AssignmentState.RELEASED
    )
    for part in session.execute(parts).all():
        if part.state is not AssignmentState.ENDED:
            raise _conflict(
                f"an attempt of job {part.job_id} has not ended on node {name}",
                "Wait for the next cycle of the scheduler, which ends attempts of lost nodes.",
            )
        endings.release(session, part.id, name)
    nodes.resume(session, name)  # another machine may get this name
    write(session, update(DeviceRow).where(DeviceRow.node_name == name).values(present=False))
    write(session, update(NodeRow).where(NodeRow.name == name).values(removed_at=db_now()))
    return True


def _conflict(message: str, next_step: str) -> LockstepError:
    return LockstepError(ErrorCode.CONFLICT, message, next_step=next_step)
