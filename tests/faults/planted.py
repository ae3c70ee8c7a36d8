"""Typical bugs of such services, each as a change of our own code that a test can make and undo.

They verify the machine: it must find every one of them with the budget of an ordinary run. Each
wraps the real function instead of copying it, so that it remains that bug when the function
changes.

Not here: the search for them (``tests.faults.test_planted``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from lockstep.domain.life.lifecycle import AssignmentState, JobState
from lockstep.storage.attempts import attempts, checkpoints, events
from lockstep.storage.attempts.endings import LIVE, ExpiredAssignment
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.series_tables import StreamRow
from lockstep.storage.db.tables import AssignmentRow, AttemptRow, JobRow
from lockstep.storage.series import series, streams


def fencing_off(patch: pytest.MonkeyPatch) -> None:
    """The token is sent and never compared.

    Any caller that names a part of a job may act for it.
    """

    def trusting(
        real: Callable[..., Any], table: type[AssignmentRow | StreamRow], key: str
    ) -> Callable[..., Any]:
        @wraps(real)
        def act(session: Session, *names: Any, **named: Any) -> Any:
            assignment_id = named["assignment_id"] if "assignment_id" in named else names[0]
            row = getattr(table, key) == assignment_id
            token = session.execute(select(table.token).where(row)).scalar_one_or_none()
            if "token" in named:
                return real(session, *names, **{**named, "token": token or named["token"]})
            return real(session, assignment_id, token or names[1], *names[2:], **named)

        return act

    for module, name in (
        (attempts, "mark_running"),
        (attempts, "writer"),
        (attempts, "end"),
        (checkpoints, "publish"),
    ):
        patch.setattr(module, name, trusting(getattr(module, name), AssignmentRow, "id"))
    patch.setattr(series, "append", trusting(series.append, StreamRow, "assignment_id"))
    real_renew = attempts.renew

    def renew(session: Session, node_name: str, tokens: Mapping[str, str], **named: Any) -> Any:
        known = select(AssignmentRow.id, AssignmentRow.token).where(
            AssignmentRow.id.in_(list(tokens))
        )
        return real_renew(
            session, node_name, {row.id: row.token for row in session.execute(known)}, **named
        )

    patch.setattr(attempts, "renew", renew)


def rescue_by_time_alone(patch: pytest.MonkeyPatch) -> None:
    """A job that has run for longer than a lease is lost, despite its heartbeats."""
    real_lose = attempts.lose

    def expired(session: Session) -> list[ExpiredAssignment]:
        statement = (
            select(
                AssignmentRow.id,
                AssignmentRow.token,
                AssignmentRow.job_id,
                AttemptRow.number,
                AssignmentRow.node_name,
            )
            .join(AttemptRow, AttemptRow.id == AssignmentRow.attempt_id)
            .where(AssignmentRow.state.in_(LIVE), AssignmentRow.created_at < db_now() - 60.0)
        )
        return [ExpiredAssignment(*row) for row in session.execute(statement)]

    def lose(session: Session, assignment_id: str, token: str, **named: Any) -> bool:
        session.execute(
            update(AssignmentRow)
            .where(AssignmentRow.id == assignment_id)
            .values(lease_expires_at=db_now() - 1.0)
        )
        return real_lose(session, assignment_id, token, **named)

    patch.setattr(attempts, "expired", expired)
    patch.setattr(attempts, "lose", lose)


def unguarded_finish(patch: pytest.MonkeyPatch) -> None:
    """Any report of an attempt's end is accepted, in every state of the job."""
    real_end = attempts.end

    def end(session: Session, assignment_id: str, token: str, outcome: Any, **named: Any) -> bool:
        if real_end(session, assignment_id, token, outcome, **named):
            return True
        job_id = session.execute(
            select(AssignmentRow.job_id).where(AssignmentRow.id == assignment_id)
        ).scalar_one()
        state = JobState.SUCCEEDED if outcome.reason.value == "succeeded" else JobState.FAILED
        session.execute(
            update(JobRow).where(JobRow.id == job_id).values(state=state, finished_at=db_now())
        )
        events.add(
            session,
            job_id=job_id,
            attempt=None,
            kind=state.value,
            message="it ended",
            actor="lockstep",
        )
        return True

    patch.setattr(attempts, "end", end)


def cancel_lost_in_a_requeue(patch: pytest.MonkeyPatch) -> None:
    """An attempt that ends for its own reason discards the requested cancel."""

    def forgetful(real: Callable[..., bool]) -> Callable[..., bool]:
        @wraps(real)
        def act(session: Session, assignment_id: str, *names: Any, **named: Any) -> bool:
            job = (
                select(AssignmentRow.job_id)
                .where(AssignmentRow.id == assignment_id)
                .scalar_subquery()
            )
            session.execute(update(JobRow).where(JobRow.id == job).values(intent=None))
            return real(session, assignment_id, *names, **named)

        return act

    for name in ("end", "lose"):
        patch.setattr(attempts, name, forgetful(getattr(attempts, name)))


def null_first_heartbeat(patch: pytest.MonkeyPatch) -> None:
    """A claimed part has no lease until its first heartbeat.

    A missing value is never below now. The column refuses NULL, which prevents this bug. Infinity
    compares as NULL would.
    """
    real_claim = attempts.claim

    def claim(session: Session, assignment_id: str, *names: Any, **named: Any) -> Any:
        claimed = real_claim(session, assignment_id, *names, **named)
        if claimed is not None:
            mine = (
                AssignmentRow.id == assignment_id,
                AssignmentRow.state == AssignmentState.CLAIMED,
            )
            session.execute(
                update(AssignmentRow).where(*mine).values(lease_expires_at=float("inf"))
            )
        return claimed

    patch.setattr(attempts, "claim", claim)


def seal_only_open_streams(patch: pytest.MonkeyPatch) -> None:
    """A stream that was never opened is not sealed, so a lost attempt can open it."""
    real_seal = streams.seal

    def seal(session: Session, assignment_id: str, **named: Any) -> bool:
        return streams.state(session, assignment_id) is not None and real_seal(
            session, assignment_id, **named
        )

    patch.setattr(streams, "seal", seal)


Plant = Callable[[pytest.MonkeyPatch], None]

PLANTED: Final = (
    fencing_off,
    rescue_by_time_alone,
    unguarded_finish,
    cancel_lost_in_a_requeue,
    null_first_heartbeat,
    seal_only_open_streams,
)
"""All planted bugs."""
