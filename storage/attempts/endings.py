"""Ends of attempts, and their effect on the job.

An attempt ends once: the fenced update of its row decides, and the job's transition, budget,
backoff and event follow in the same transaction. Locks are taken in the order attempt, assignments,
devices, job: ends of two nodes of a gang, a cancel and a lost lease wait for each other without a
deadlock.

The attempt's stream is sealed afterwards, in the other database, by the program that ended the
attempt; a later attempt seals earlier streams when it opens its own. Uploads must therefore finish
before the end.

Not here: the effect of an outcome on the job (``storage.attempts.judging``), and starts
(``storage.attempts.placing``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, bindparam, func, select, update
from sqlalchemy.orm import Session

from lockstep.domain.life import gang
from lockstep.domain.life.lifecycle import AssignmentState, AttemptState
from lockstep.domain.life.outcomes import RULES, Outcome, Reason
from lockstep.domain.life.timings import Timings
from lockstep.storage.attempts import events, judging, nodes
from lockstep.storage.db.clock import db_now, now
from lockstep.storage.db.dialects import run, table_of, write
from lockstep.storage.db.tables import AssignmentRow, AttemptRow, DeviceRow, JobRow

LIVE = (AssignmentState.ASSIGNED, AssignmentState.CLAIMED)
"""States of an assignment whose token is valid."""
ACTOR = judging.ACTOR


@dataclass(frozen=True)
class ExpiredAssignment:
    """An assignment whose node has been silent for longer than its lease."""

    assignment_id: str
    token: str
    job_id: str
    attempt_number: int
    node_name: str


def lock_attempt(session: Session, assignment_id: str) -> AttemptRow | None:
    """The attempt of an assignment, locked until the transaction ends.

    The first lock of everything about an attempt.
    """
    return session.scalars(_LOCKED, {"of_assignment": assignment_id}).one_or_none()


_LOCKED: Final = (
    select(AttemptRow)
    .where(
        AttemptRow.id
        == select(AssignmentRow.attempt_id)
        .where(AssignmentRow.id == bindparam("of_assignment"))
        .scalar_subquery()
    )
    .with_for_update(key_share=True)
    .execution_options(populate_existing=True)
)


def held_under(assignment_id: str, token: str) -> tuple[ColumnElement[bool], ...]:
    """Conditions on an assignment's row: it has not ended, and its token is this one."""
    return (
        AssignmentRow.id == assignment_id,
        AssignmentRow.token == token,
        AssignmentRow.state.in_(LIVE),
    )


def lock_live(session: Session, job_id: str) -> AttemptRow | None:
    """The job's attempt that has not ended, locked until the transaction ends."""
    statement = (
        select(AttemptRow)
        .where(AttemptRow.job_id == job_id, AttemptRow.state != AttemptState.ENDED)
        .with_for_update(key_share=True)
    )
    return session.scalars(statement.execution_options(populate_existing=True)).one_or_none()


def end(
    session: Session,
    assignment_id: str,
    token: str,
    outcome: Outcome,
    *,
    timings: Timings,
    node_failed: bool = False,
) -> bool:
    """Store the end of an assignment, and end the attempt if that decides it.

    The first known cause of failure is the attempt's outcome, and the other assignments end with
    it; it succeeds once all have succeeded.

    Parameters
    ----------
    session : Session
    assignment_id, token : str
    outcome : Outcome
    timings : Timings
    node_failed : bool, optional
        The agent itself observed that the node failed. An outcome alone does not count against a
        node, because a job can write one.

    Returns
    -------
    bool
        False, with nothing written, if the token is no longer valid or this assignment has ended
        already.
    """
    attempt = lock_attempt(session, assignment_id)
    if attempt is None:
        return False
    ended = {
        "of_assignment": assignment_id,
        "of_token": token,
        "with_outcome": outcome.model_dump(mode="json"),
    }
    node = run(session, _PART_ENDED, ended).scalar_one_or_none()
    if node is None:
        return False
    if gang.is_cause(outcome) or _stops_alone(session, attempt, outcome):
        note_cause(session, attempt, outcome)
    conclude(session, attempt, timings=timings)
    if outcome.reason is Reason.SUCCEEDED:
        nodes.forgive(session, node)
    elif node_failed and RULES[outcome.reason].blames_node:
        nodes.blame(session, node, attempt.job_id, outcome.reason)
    return True


def lose(
    session: Session,
    assignment_id: str,
    token: str,
    *,
    timings: Timings,
    last_step: int | None = None,
) -> bool:
    """End an assignment whose node stopped its heartbeat, if the lease is still expired.

    That is the cause of the attempt's end unless another is known. The job is not placed again
    before its old node has certainly stopped its ranks. ``last_step`` is the last reported one.

    Returns
    -------
    bool
        False if the node renewed meanwhile, or the attempt ended otherwise.
    """
    attempt = lock_attempt(session, assignment_id)
    if attempt is None:
        return False
    fenced = update(AssignmentRow).where(
        *held_under(assignment_id, token), AssignmentRow.lease_expires_at < db_now()
    )
    # An unclaimed one can never be claimed now, so nothing of it can run. It is only marked as
    # ended here and freed with
    # the attempt's other unclaimed parts.
    values = {"state": AssignmentState.ENDED, "ended_at": db_now()}
    lost = write(
        session,
        fenced.values(values).returning(AssignmentRow.node_name, AssignmentRow.claimed_at),
    ).one_or_none()
    if lost is None:
        return False
    node = lost.node_name
    if lost.claimed_at is not None:
        outcome = Outcome.of(
            Reason.LOST, f"node {node} fell silent", node=node, last_step=last_step
        )
    else:
        outcome = Outcome.of(Reason.UNANSWERED, f"node {node} never answered", node=node)
    write(
        session,
        update(AssignmentRow)
        .where(AssignmentRow.id == assignment_id)
        .values(outcome=outcome.model_dump(mode="json")),
    )
    if lost.claimed_at is None:
        _free(session, assignment_id)
    was_ending = attempt.cause_at is not None
    note_cause(session, attempt, outcome)
    conclude(session, attempt, timings=timings)
    if was_ending and lost.claimed_at is not None:
        note_unsent(session, attempt, node)
    nodes.blame(session, node, attempt.job_id, outcome.reason)
    return True


def end_unclaimed(session: Session, attempt: AttemptRow, outcome: Outcome) -> bool:
    """End an attempt (locked by the caller) that a user stops at once, if no node has claimed it.

    Returns
    -------
    bool
        False when some node has: then that node ends it.
    """
    states = session.scalars(
        select(AssignmentRow.state).where(AssignmentRow.attempt_id == attempt.id)
    )
    if any(state is not AssignmentState.ASSIGNED for state in states):
        return False
    # No wait can follow from this outcome, so the timings do not matter.
    return end_attempt(session, attempt, outcome, timings=Timings())


def expired(session: Session) -> list[ExpiredAssignment]:
    """Every assignment whose lease has run out, oldest first."""
    statement = (
        select(
            AssignmentRow.id,
            AssignmentRow.token,
            AssignmentRow.job_id,
            AttemptRow.number,
            AssignmentRow.node_name,
        )
        .join(AttemptRow, AttemptRow.id == AssignmentRow.attempt_id)
        .where(AssignmentRow.state.in_(LIVE), AssignmentRow.lease_expires_at < db_now())
        .order_by(AssignmentRow.lease_expires_at)
    )
    return [ExpiredAssignment(*row) for row in session.execute(statement)]


def release(session: Session, assignment_id: str, node_name: str) -> bool:
    """Give an ended assignment's devices back: no process of it is left on its node.

    Returns
    -------
    bool
        False when it has not ended, is another node's, or was released before.
    """
    if (
        run(session, _RELEASED, {"of_assignment": assignment_id, "on_node": node_name}).rowcount
        == 0
    ):
        return False
    run(session, _FREED, {"of_assignment": assignment_id})
    return True


def note_cause(session: Session, attempt: AttemptRow, outcome: Outcome) -> None:
    """Store the outcome of a locked attempt over several nodes before these have ended.

    The first one stays. Each node with ranks ends these and sends what they wrote
    (``gangs.to_end``).
    """
    if attempt.node_count > 1 and attempt.cause_at is None:
        attempt.cause, attempt.cause_at = outcome.model_dump(mode="json"), now(session)
        session.flush()
        for assignment_id in run(session, _UNCLAIMED, {"of_attempt": attempt.id}).scalars().all():
            _free(session, assignment_id)


def note_unsent(session: Session, attempt: AttemptRow, node: str) -> None:
    """Add an event about a node that did not report its end after the cause of another."""
    message = f"node {node} did not report the end of its ranks: what they wrote last is not stored"
    events.add(
        session,
        job_id=attempt.job_id,
        attempt=attempt.number,
        kind="warning",
        message=message,
        actor=ACTOR,
    )


def _stops_alone(session: Session, attempt: AttemptRow, outcome: Outcome) -> bool:
    """Return whether a part was stopped, and the other nodes have no request to stop.

    Its agent ended while it prepared the part, so the ranks of the others would wait for it.
    """
    if outcome.reason is not Reason.SHUTDOWN:
        return False
    intent = select(JobRow.intent).where(JobRow.id == attempt.job_id)
    return session.scalars(intent).one_or_none() is None


def conclude(session: Session, attempt: AttemptRow, *, timings: Timings) -> None:
    """End a locked attempt if the ends of its parts decide it."""
    parts, stopped_at = [], 0.0
    for row in run(session, _PARTS, {"of_attempt": attempt.id}):
        outcome = None if row.outcome is None else Outcome.stored(row.outcome)
        claimed = row.state is not AssignmentState.ASSIGNED
        parts.append(gang.GangMember(row.node_rank, row.ended_at, outcome, claimed=claimed))
        lost = outcome is not None and outcome.reason in (Reason.LOST, Reason.UNANSWERED)
        if lost and row.lease_expires_at < (row.ended_at or 0.0):
            # Its ranks may live until their fence, which counts from the last renewal. An agent
            # that reports a restarted node has renewed.
            renewed_at = row.lease_expires_at - timings.lease_seconds
            stopped_at = max(stopped_at, renewed_at + timings.replace_after_seconds)
    cause = None if attempt.cause is None else Outcome.stored(attempt.cause)
    decided = gang.decide(parts, cause)
    if decided is not None:
        end_attempt(session, attempt, decided, timings=timings, not_before=stopped_at)


def _free(session: Session, assignment_id: str) -> None:
    """Release a part that was never claimed: no process of it was ever started."""
    values = {
        "state": AssignmentState.RELEASED,
        "ended_at": func.coalesce(AssignmentRow.ended_at, db_now()),
        "released_at": db_now(),
    }
    write(session, update(AssignmentRow).where(AssignmentRow.id == assignment_id).values(values))
    run(session, _FREED, {"of_assignment": assignment_id})


def end_attempt(
    session: Session,
    attempt: AttemptRow,
    outcome: Outcome,
    *,
    timings: Timings,
    not_before: float = 0.0,
) -> bool:
    """End a locked attempt and move its job; False when it has ended already."""
    ended = {"of_attempt": attempt.id, "with_outcome": outcome.model_dump(mode="json")}
    if run(session, _ATTEMPT_ENDED, ended).rowcount == 0:
        return False
    # No claimed part has ranks now, or its node was given up by the caller.
    for assignment_id in run(session, _UNCLAIMED, {"of_attempt": attempt.id}).scalars().all():
        _free(session, assignment_id)
    judging.move_job(session, attempt, outcome, timings=timings, not_before=not_before)
    return True


# --- statements

_PART: Final = table_of(AssignmentRow)
_ATTEMPT: Final = table_of(AttemptRow)
_DEVICE: Final = table_of(DeviceRow)
_PART_ENDED: Final = (
    update(_PART)
    .where(
        _PART.c.id == bindparam("of_assignment"),
        _PART.c.token == bindparam("of_token"),
        _PART.c.state.in_(LIVE),
    )
    .values(state=AssignmentState.ENDED, ended_at=db_now(), outcome=bindparam("with_outcome"))
    .returning(_PART.c.node_name)
)
_ATTEMPT_ENDED: Final = (
    update(_ATTEMPT)
    .where(_ATTEMPT.c.id == bindparam("of_attempt"), _ATTEMPT.c.state != AttemptState.ENDED)
    .values(state=AttemptState.ENDED, ended_at=db_now(), outcome=bindparam("with_outcome"))
)
_RELEASED: Final = (
    update(_PART)
    .where(
        _PART.c.id == bindparam("of_assignment"),
        _PART.c.node_name == bindparam("on_node"),
        _PART.c.state == AssignmentState.ENDED,
    )
    .values(state=AssignmentState.RELEASED, released_at=db_now())
)
_FREED: Final = (
    update(_DEVICE)
    .where(_DEVICE.c.assignment_id == bindparam("of_assignment"))
    .values(assignment_id=None, free_since=db_now())
)
_PARTS: Final = select(
    _PART.c.node_rank,
    _PART.c.state,
    _PART.c.ended_at,
    _PART.c.outcome,
    _PART.c.lease_expires_at,
).where(_PART.c.attempt_id == bindparam("of_attempt"))
_UNCLAIMED: Final = select(_PART.c.id).where(
    _PART.c.attempt_id == bindparam("of_attempt"),
    _PART.c.state == AssignmentState.ASSIGNED,
)
