"""Ends of a gang's assignments.

``domain.life.gang`` decides which outcome is the gang's; ``storage.attempts.endings.end`` calls it.

* A node has its outcome before the upload of its ranks' output ends, and a checkpoint may take
  minutes. It therefore reports the outcome first (``report``). A cause ends the other nodes' ranks
  within seconds (``to_end``), since these hold devices, and their nodes send what they wrote. One
  that does not report its own end within a lease is given up (``settle``).
* A node that only lost the others waits for a node with a cause. If all others ran on for
  ``CAUSE_SECONDS``, the connection was lost, and a reconcile cycle makes this the cause
  (``settle``). A dead node does not run on: its lease expires, and it is named
  (``storage.attempts.endings.lose``).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import and_, or_, select, update
from sqlalchemy.orm import Session

from lockstep.domain.life.gang import is_cause, is_consequence
from lockstep.domain.life.lifecycle import AssignmentState, AttemptState
from lockstep.domain.life.outcomes import Outcome
from lockstep.domain.life.timings import Timings
from lockstep.storage.attempts.endings import (
    LIVE,
    conclude,
    held_under,
    lock_attempt,
    note_cause,
    note_unsent,
)
from lockstep.storage.db.clock import db_now, now
from lockstep.storage.db.dialects import changed
from lockstep.storage.db.tables import AssignmentRow, AttemptRow

CAUSE_SECONDS: Final = 20.0
"""From a rank's failure to its node's report of it on a loaded machine: the grace of the ranks
beside it, their last lines, the sweep."""


def report(session: Session, assignment_id: str, token: str, outcome: Outcome) -> bool:
    """Note how a part will end, once all that it wrote is sent. A cause ends the other parts.

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
        note_cause(session, attempt, outcome)
    return True


def to_end(session: Session, node_name: str) -> set[str]:
    """Return the claimed assignments of a node whose gang has a cause of its end."""
    return set(
        session.scalars(
            select(AssignmentRow.id)
            .join(AttemptRow, AttemptRow.id == AssignmentRow.attempt_id)
            .where(
                AssignmentRow.node_name == node_name,
                AssignmentRow.state == AssignmentState.CLAIMED,
                AttemptRow.cause_at.is_not(None),
            )
        )
    )


def unsettled(session: Session, timings: Timings) -> list[str]:
    """Return the assignments of gangs that :func:`settle` must check."""
    at = db_now()
    lost_others = and_(
        AttemptRow.cause_at.is_(None),
        AssignmentRow.state.in_((AssignmentState.ENDED, AssignmentState.RELEASED)),
        AssignmentRow.ended_at < at - CAUSE_SECONDS,
    )
    late = and_(
        AttemptRow.cause_at < at - timings.lease_seconds,
        AssignmentRow.state == AssignmentState.CLAIMED,
    )
    statement = (
        select(AssignmentRow.id)
        .join(AttemptRow, AttemptRow.id == AssignmentRow.attempt_id)
        .where(
            AttemptRow.state != AttemptState.ENDED,
            AttemptRow.node_count > 1,
            or_(lost_others, late),
        )
        .order_by(AssignmentRow.ended_at, AssignmentRow.id)
    )
    return list(session.scalars(statement))


def settle(session: Session, assignment_id: str, *, timings: Timings) -> str | None:
    """Decide about a gang that waits for a node.

    Returns
    -------
    str or None
        The decision, for the log. None if the gang waits on.
    """
    attempt = lock_attempt(session, assignment_id)
    if attempt is None or attempt.state is AttemptState.ENDED:
        return None
    part = session.get_one(AssignmentRow, assignment_id, populate_existing=True)
    if attempt.cause_at is None:
        return _settle_lost_connection(session, attempt, part, timings)
    if (
        part.state is not AssignmentState.CLAIMED
        or part.outcome is not None
        or now(session) < attempt.cause_at + timings.lease_seconds
    ):
        return None
    # Its node reads from its next renewal that this is over, and kills its ranks.
    part.state, part.ended_at = AssignmentState.ENDED, now(session)
    session.flush()
    conclude(session, attempt, timings=timings)
    note_unsent(session, attempt, part.node_name)
    return f"node {part.node_name} did not end its ranks in time after the failure of another node"


def _settle_lost_connection(
    session: Session, attempt: AttemptRow, part: AssignmentRow, timings: Timings
) -> str | None:
    """Make it the cause that a part lost the others, if these ran on and report none."""
    outcome = None if part.outcome is None else Outcome.stored(part.outcome)
    if outcome is None or part.ended_at is None or not is_consequence(outcome):
        return None
    others = session.execute(
        select(AssignmentRow.lease_expires_at, AssignmentRow.outcome).where(
            AssignmentRow.attempt_id == attempt.id, AssignmentRow.state.in_(LIVE)
        )
    ).all()
    enough = part.ended_at + CAUSE_SECONDS + timings.lease_seconds
    if any(row.outcome is not None or row.lease_expires_at < enough for row in others):
        return None
    note_cause(session, attempt, outcome)
    conclude(session, attempt, timings=timings)
    return "the nodes of an attempt lost their connections to each other"
