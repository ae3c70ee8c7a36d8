"""Ends of a gang's assignments.

``domain.life.gang`` decides which of them ends the gang; ``storage.attempts.endings.end`` calls it.
Two cases remain:

* A node has its outcome before the upload of its ranks' output ends, and a checkpoint may take
  minutes. It therefore reports the outcome first (``report``). A cause ends the other nodes'
  assignments at once, since their ranks hold devices.
* A node that only lost the others waits for a node with a cause. If all others ran on for
  ``CAUSE_SECONDS``, the connection was lost, and a reconcile cycle decides so (``settle``). A dead
  node does not run on: its lease expires, and it is named (``storage.attempts.endings.lose``).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from lockstep.domain.life.gang import is_cause, is_consequence
from lockstep.domain.life.lifecycle import AssignmentState, AttemptState
from lockstep.domain.life.outcomes import Outcome
from lockstep.domain.life.timings import Timings
from lockstep.storage.attempts.endings import (
    LIVE,
    end_attempt,
    end_others,
    held_under,
    lock_attempt,
)
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.dialects import changed
from lockstep.storage.db.tables import AssignmentRow, AttemptRow

CAUSE_SECONDS: Final = 10.0
"""From a rank's failure to its node's word about it: the grace of the ranks beside it, their last
lines, the sweep."""


def report(session: Session, assignment_id: str, token: str, outcome: Outcome) -> bool:
    """Note how a part will end, once all that it wrote is sent. A cause ends the other parts now.

    Returns
    -------
    bool
        False, and nothing written, when the token is not valid any more.
    """
    attempt = lock_attempt(session, assignment_id)
    fenced = update(AssignmentRow).where(*held_under(assignment_id, token))
    if (
        attempt is None
        or changed(session, fenced.values(outcome=outcome.model_dump(mode="json"))) == 0
    ):
        return False
    if is_cause(outcome):
        end_others(session, attempt.id, assignment_id)
    return True


def stranded(session: Session) -> list[str]:
    """Assignments that ended a while ago and whose attempt has not; :func:`settle` looks closer."""
    statement = (
        select(AssignmentRow.id)
        .join(AttemptRow, AttemptRow.id == AssignmentRow.attempt_id)
        .where(
            AttemptRow.state != AttemptState.ENDED,
            AttemptRow.node_count > 1,
            AssignmentRow.state.in_((AssignmentState.ENDED, AssignmentState.RELEASED)),
            AssignmentRow.ended_at < db_now() - CAUSE_SECONDS,
        )
        .order_by(AssignmentRow.ended_at)
    )
    return list(session.scalars(statement))


def settle(session: Session, assignment_id: str, *, timings: Timings) -> bool:
    """End the attempt of an assignment that lost the others without a cause.

    Returns
    -------
    bool
        False if it did not lose them, or another assignment may still report a cause.
    """
    attempt = lock_attempt(session, assignment_id)
    if attempt is None or attempt.state is AttemptState.ENDED:
        return False
    part = session.get_one(AssignmentRow, assignment_id, populate_existing=True)
    outcome = None if part.outcome is None else Outcome.stored(part.outcome)
    if outcome is None or part.ended_at is None or not is_consequence(outcome):
        return False
    others = session.execute(
        select(AssignmentRow.lease_expires_at, AssignmentRow.outcome).where(
            AssignmentRow.attempt_id == attempt.id, AssignmentRow.state.in_(LIVE)
        )
    ).all()
    enough = part.ended_at + CAUSE_SECONDS + timings.lease_seconds
    if any(row.outcome is not None or row.lease_expires_at < enough for row in others):
        return False
    return end_attempt(session, attempt, outcome, timings=timings)
