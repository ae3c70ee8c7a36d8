"""Attempts at jobs: placed by the scheduler, claimed, renewed and ended by nodes.

Every write carries the assignment's token, and the database compares it: a writer whose lease was
lost matches no row and stops. No program needs certainty that another one is dead.

Placement is in ``storage.attempts.placing``, claims are in ``storage.attempts.claiming``, ends and
their effect on the job in ``storage.attempts.endings``; their functions are re-exported here.
Uploads are in ``storage.series.series`` and ``storage.logs.logs``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import and_, bindparam, func, select, tuple_, update
from sqlalchemy.orm import Session, selectinload

from lockstep.domain.life.lifecycle import AssignmentState, AttemptState, Intent, JobState
from lockstep.domain.training.memory import MemoryForecast
from lockstep.storage.attempts import events, nodes, transitions
from lockstep.storage.attempts.claiming import Claim, Published, claim
from lockstep.storage.attempts.endings import (
    ACTOR,
    LIVE,
    ExpiredAssignment,
    end,
    expired,
    lock_attempt,
    lose,
    release,
)
from lockstep.storage.attempts.placing import PlacedAssignment, PlacedAttempt, place
from lockstep.storage.db.clock import db_now, now
from lockstep.storage.db.dialects import run, table_of, write
from lockstep.storage.db.tables import AssignmentRow, AttemptRow, JobRow
from lockstep.storage.series.streams import Writer

__all__ = [
    "Claim",
    "ExpiredAssignment",
    "HeldAssignment",
    "PlacedAssignment",
    "PlacedAttempt",
    "Published",
    "claim",
    "end",
    "expired",
    "held",
    "known",
    "lose",
    "mark_running",
    "newest",
    "of_job",
    "overdue",
    "place",
    "release",
    "renew",
    "settle_plan",
    "unclaimed",
    "wanted",
    "writer",
]


@dataclass(frozen=True)
class HeldAssignment:
    """An assignment that still holds devices of its node: claimed, or ended and not swept yet."""

    assignment_id: str
    token: str
    job_id: str
    attempt_number: int
    state: AssignmentState


def _fenced(session: Session, assignment_id: str, token: str) -> AttemptRow | None:
    """The attempt, locked, if the token is the valid one of an assignment that has not ended."""
    attempt = lock_attempt(session, assignment_id)
    return None if attempt is None or writer(session, assignment_id, token) is None else attempt


def writer(session: Session, assignment_id: str, token: str) -> Writer | None:
    """Return the right to open the assignment's stream.

    None if it is not claimed under this token.
    """
    found = run(session, _WRITER, {"of_assignment": assignment_id, "of_token": token}).one_or_none()
    return None if found is None else Writer(*found)


def mark_running(session: Session, assignment_id: str, token: str) -> bool:
    """Note that all ranks have met, or that the processes of a script have started.

    A second call changes nothing.

    Returns
    -------
    bool
        False if the token is no longer valid.
    """
    attempt = _fenced(session, assignment_id, token)
    if attempt is None:
        return False
    if attempt.state is AttemptState.STARTING:
        attempt.state = AttemptState.RUNNING
        attempt.running_at = now(session)
        session.flush()
        message = (
            "1 rank is running"
            if attempt.world_size == 1
            else f"{attempt.world_size} ranks are running"
        )
        transitions.take(
            session, attempt.job_id, "run", attempt=attempt.number, reason=message, actor=ACTOR
        )
    return True


def settle_plan(session: Session, assignment_id: str, token: str, plan: dict[str, Any]) -> bool:
    """Store the engine's actual plan as the plan of attempt and job.

    Returns
    -------
    bool
        False if the token is no longer valid.
    """
    attempt = _fenced(session, assignment_id, token)
    if attempt is None:
        return False
    if attempt.plan != plan:
        memory = plan.get("memory")
        predicted = memory is not None and memory != (attempt.plan or {}).get("memory")
        attempt.plan = plan
        session.flush()
        settled = update(JobRow).where(
            JobRow.id == attempt.job_id, JobRow.attempt_count == attempt.number
        )
        changes = {"plan": plan, "steps": plan.get("steps"), "version": JobRow.version + 1}
        write(session, settled.values(changes))
        events.add(
            session,
            job_id=attempt.job_id,
            attempt=attempt.number,
            kind="plan",
            message=f"memory: {MemoryForecast.model_validate(memory).sentence()}"
            if predicted
            else "the batch plan is final",
            actor=ACTOR,
            data=plan,
        )
    return True


def renew(
    session: Session, node_name: str, tokens: Mapping[str, str], *, lease_seconds: float
) -> dict[str, Intent | None]:
    """Renew the leases of a node's assignments, and store the node's heartbeat.

    There is no condition on time: a lease that expired during an outage of the database is renewed
    if the work was not given away yet. Only :func:`lose` decides that a lease has expired.

    Parameters
    ----------
    session : Session
    node_name : str
    tokens : mapping of assignment id to token
    lease_seconds : float

    Returns
    -------
    dict of assignment id to Intent or None
        Intent of each. A missing assignment is lost: its ranks must stop.
    """
    answer: dict[str, Intent | None] = {}
    if tokens:
        intent = (
            select(JobRow.intent)
            .where(JobRow.id == AssignmentRow.job_id)
            .correlate(AssignmentRow)
            .scalar_subquery()
        )
        renewed = (
            update(AssignmentRow)
            .where(
                AssignmentRow.node_name == node_name,
                AssignmentRow.state.in_(LIVE),
                tuple_(AssignmentRow.id, AssignmentRow.token).in_(sorted(tokens.items())),
            )
            .values(lease_expires_at=db_now() + lease_seconds)
            .returning(AssignmentRow.id, intent)
        )
        answer = {row[0]: row[1] for row in write(session, renewed)}
    nodes.touch(session, node_name)
    return answer


def known(session: Session, assignment_ids: Collection[str]) -> set[str]:
    """Return which of these assignments have a row, in any state.

    No row of a claimed assignment is ever deleted. A database without it was restored from an older
    backup.
    """
    if not assignment_ids:
        return set()
    rows = select(AssignmentRow.id).where(AssignmentRow.id.in_(assignment_ids))
    return set(session.scalars(rows))


def wanted(session: Session, node_name: str) -> dict[str, Intent]:
    """Return the intents of a node's claimed assignments by id, without a renewal."""
    statement = (
        select(AssignmentRow.id, JobRow.intent)
        .join(JobRow, JobRow.id == AssignmentRow.job_id)
        .where(
            AssignmentRow.node_name == node_name,
            AssignmentRow.state == AssignmentState.CLAIMED,
            JobRow.intent.is_not(None),
        )
    )
    return {
        assignment_id: intent
        for assignment_id, intent in session.execute(statement)
        if intent is not None
    }


def unclaimed(session: Session, node_name: str) -> list[str]:
    """Assignments that wait for a node to claim them, oldest first.

    Their messages may have been lost.
    """
    waiting = and_(
        AssignmentRow.node_name == node_name, AssignmentRow.state == AssignmentState.ASSIGNED
    )
    return list(session.scalars(select(AssignmentRow.id).where(waiting).order_by(AssignmentRow.id)))


def held(session: Session, node_name: str) -> list[HeldAssignment]:
    """Assignments that hold a node's devices: to adopt (claimed) or to release (ended)."""
    holding = (AssignmentState.CLAIMED, AssignmentState.ENDED)
    statement = (
        select(
            AssignmentRow.id,
            AssignmentRow.token,
            AssignmentRow.job_id,
            AttemptRow.number,
            AssignmentRow.state,
        )
        .join(AttemptRow, AttemptRow.id == AssignmentRow.attempt_id)
        .where(AssignmentRow.node_name == node_name, AssignmentRow.state.in_(holding))
        .order_by(AssignmentRow.id)
    )
    return [HeldAssignment(*row) for row in session.execute(statement)]


def newest(session: Session, job_ids: Iterable[str]) -> dict[str, AttemptRow]:
    """The newest attempt of each job that has one, with its assignments, in two statements."""
    statement = (
        select(AttemptRow)
        .join(
            JobRow, and_(JobRow.id == AttemptRow.job_id, JobRow.attempt_count == AttemptRow.number)
        )
        .where(AttemptRow.job_id.in_(list(job_ids)))
        .options(selectinload(AttemptRow.assignments))
        .execution_options(populate_existing=True)
    )
    return {attempt.job_id: attempt for attempt in session.scalars(statement)}


def of_job(session: Session, job_id: str, *, limit: int) -> list[AttemptRow]:
    """A job's attempts with their assignments, newest first."""
    statement = (
        select(AttemptRow)
        .where(AttemptRow.job_id == job_id)
        .order_by(AttemptRow.number.desc())
        .limit(limit)
    )
    return list(session.scalars(statement.options(selectinload(AttemptRow.assignments))))


def overdue(session: Session) -> list[str]:
    """Running jobs whose ``timeout_seconds`` are over, all attempts together.

    A job with ``stop_grace_seconds`` is stopped that much before.
    """
    stop_seconds = func.coalesce(JobRow.spec["stop_grace_seconds"].as_float(), 0.0)
    statement = (
        select(JobRow.id)
        .join(
            AttemptRow,
            and_(AttemptRow.job_id == JobRow.id, AttemptRow.number == JobRow.attempt_count),
        )
        .where(
            JobRow.state == JobState.RUNNING,
            JobRow.intent.is_(None),
            JobRow.timeout_seconds
            < JobRow.running_seconds + (db_now() - AttemptRow.running_at) + stop_seconds,
        )
    )
    return list(session.scalars(statement))


# --- statements

_PART: Final = table_of(AssignmentRow)
_ATTEMPT: Final = table_of(AttemptRow)
_WRITER: Final = (
    select(_PART.c.id, _PART.c.job_id, _ATTEMPT.c.number, _PART.c.token)
    .join(_ATTEMPT, _ATTEMPT.c.id == _PART.c.attempt_id)
    .where(
        _PART.c.id == bindparam("of_assignment"),
        _PART.c.token == bindparam("of_token"),
        _PART.c.state == AssignmentState.CLAIMED,
    )
)
