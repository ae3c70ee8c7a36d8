"""Requests of users about a job: cancel, pause, resume, requeue. Also the other requests to stop.

A job without a process changes at once. One that is live gets an intent, which its nodes read with
their next renewal; its state changes once they have ended it (``storage.attempts.endings``).

Not here: lookup of the job (``storage.jobs.jobs``), the grace (``domain.life.grace``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.kinds.offers import PAUSES
from lockstep.domain.life.grace import LEAST_SECONDS, REASON_OF
from lockstep.domain.life.lifecycle import TERMINAL, Intent, JobState
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.storage.attempts import endings, events, stops, transitions
from lockstep.storage.attempts.nodes import is_there
from lockstep.storage.db.dialects import write
from lockstep.storage.db.tables import AssignmentRow, AttemptRow, JobRow, NodeRow
from lockstep.storage.jobs.jobs import get

_STATE: Final = transitions.JOBS.c.state


class _Request(NamedTuple):
    """Request of a user that ends a live attempt."""

    intent: Intent
    idle: Mapping[JobState, str]
    """Transition of a job without a process, by its state."""
    done: str
    """Verb of the message about such a job: ``cancelled`` by ada."""
    asked: str
    """Object of the message about a live one: ada requested ``the cancellation``."""
    refused: Mapping[JobState, tuple[str, str]] = {}
    """Message and next step for other states."""


_CANCEL: Final = _Request(
    Intent.CANCEL,
    {JobState.QUEUED: "cancel", JobState.PAUSED: "cancel"},
    "cancelled",
    "the cancellation",
)
_PAUSE: Final = _Request(
    Intent.PAUSE,
    {JobState.QUEUED: "pause"},
    "paused",
    "a pause",
    {JobState.PAUSED: ("is paused already", "Continue it with: lockstep resume JOB.")},
)
_REQUEUE: Final = _Request(
    Intent.REQUEUE,
    {},
    "requeued",
    "a new start",
    {
        JobState.QUEUED: ("waits already", "lockstep why JOB shows for what it waits."),
        JobState.PAUSED: ("is paused", "Continue it with: lockstep resume JOB."),
    },
)
_REPLACED: Final[Mapping[Intent, tuple[Intent, ...]]] = {
    Intent.CANCEL: tuple(set(Intent) - {Intent.CANCEL}),
    Intent.PAUSE: (Intent.REQUEUE, Intent.SHUTDOWN),
    Intent.REQUEUE: (Intent.PAUSE,),
}
"""Intents that another one replaces."""
_ENDED_AS: Final[Mapping[JobState, str]] = {
    JobState.SUCCEEDED: "succeeded",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "been cancelled",
}


def cancel(
    session: Session,
    job_id: str,
    actor: str,
    *,
    now: bool = False,
    least_seconds: float = LEAST_SECONDS,
) -> JobRow:
    """Cancel a job: at once while nothing of it runs, otherwise by asking its nodes.

    ``now`` leaves its processes no time for a checkpoint, also if a cancel is under way.

    Raises
    ------
    LockstepError
        ``NOT_FOUND``; ``CONFLICT`` when it has ended.
    """
    return _request(session, job_id, _CANCEL, actor, now=now, least_seconds=least_seconds)


def pause(
    session: Session,
    job_id: str,
    actor: str,
    *,
    now: bool = False,
    least_seconds: float = LEAST_SECONDS,
) -> JobRow:
    """Pause a job until :func:`resume`: as :func:`cancel`, and it keeps its age.

    Raises
    ------
    LockstepError
        ``NOT_FOUND``; ``CONFLICT`` when it is paused, has ended, or is asked to end.
    """
    return _request(session, job_id, _PAUSE, actor, now=now, least_seconds=least_seconds)


def requeue(
    session: Session,
    job_id: str,
    actor: str,
    *,
    avoid: tuple[str, ...] = (),
    now: bool = False,
    least_seconds: float = LEAST_SECONDS,
) -> JobRow:
    """Stop a live job and queue it again; it tries the nodes ``avoid`` last.

    Raises
    ------
    LockstepError
        ``NOT_FOUND``; ``INVALID`` for an unknown node; ``CONFLICT`` when the job is not live, or is
        asked to end.
    """
    known = set(session.scalars(select(NodeRow.name).where(NodeRow.name.in_(avoid), is_there())))
    if unknown := sorted({*avoid} - known):
        raise LockstepError(
            ErrorCode.INVALID,
            f"there is no node {', '.join(map(repr, unknown))}",
            next_step="List the nodes with: lockstep nodes",
        )
    request = _REQUEUE
    if avoid:
        request = request._replace(
            asked=f"{request.asked} that avoids {', '.join(sorted({*avoid}))}"
        )
    job = _request(session, job_id, request, actor, now=now, least_seconds=least_seconds)
    if avoid:
        nodes = sorted({*job.avoid_nodes, *avoid})
        write(session, update(JobRow).where(JobRow.id == job_id).values(avoid_nodes=nodes))
    return job


def is_paused(job: JobRow) -> bool:
    """Return whether a job is paused, or will be once its processes have ended."""
    return job.state is JobState.PAUSED or job.intent is Intent.PAUSE


def resume(
    session: Session, job_id: str, actor: str, *, least_seconds: float = LEAST_SECONDS
) -> JobRow:
    """Queue a paused job again, with its age; one that is being paused is queued once it has ended.

    Raises
    ------
    LockstepError
        ``NOT_FOUND``; ``CONFLICT`` when it is not paused.
    """
    endings.lock_live(session, job_id)
    message = f"resumed by {actor}"
    if not transitions.take(session, job_id, "resume", attempt=None, reason=message, actor=actor):
        job = get(session, job_id)
        if job is None or job.intent is not Intent.PAUSE:
            raise _refusal(job_id, job, {}, otherwise="is not paused")
        message = f"{actor} resumed it"
        least = least_seconds
        ask(session, job_id, Intent.REQUEUE, actor=actor, message=message, least_seconds=least)
    return _found(session, job_id)


def _request(
    session: Session,
    job_id: str,
    request: _Request,
    actor: str,
    *,
    now: bool,
    least_seconds: float,
) -> JobRow:
    message = f"{request.done} by {actor}"
    # The attempt first: its end takes the same lock, so meanwhile the job cannot return to the
    # queue between the two statements below. Where there is no attempt yet one may appear in
    # between, and even end: hence the second round, and the bound, because nothing turns over twice
    # in the time of two statements.
    for _round in range(3):
        attempt = endings.lock_live(session, job_id)
        if any(
            transitions.take(
                session,
                job_id,
                transition,
                attempt=None,
                reason=message,
                actor=actor,
                only_if=(state == _STATE,),
            )
            for state, transition in request.idle.items()
        ):
            break
        if attempt is not None and request.intent is not Intent.CANCEL:
            _require_new_agents(session, attempt)
        if ask(
            session,
            job_id,
            request.intent,
            actor=actor,
            message=f"{actor} requested {request.asked}",
            now=now,
            least_seconds=least_seconds,
        ):
            if attempt is not None:
                outcome = Outcome.of(Reason(REASON_OF[request.intent]), message)
                endings.end_unclaimed(session, attempt, outcome)
            break
        job = get(session, job_id)
        if job is None or job.state in TERMINAL or job.state in request.refused:
            raise _refusal(job_id, job, request.refused)
        if job.intent is request.intent:
            break
        if job.intent is not None and job.intent not in _REPLACED[request.intent]:
            raise _refusal(job_id, job, {}, otherwise="is being stopped")
    return _found(session, job_id)


def _require_new_agents(session: Session, attempt: AttemptRow) -> None:
    nodes = select(NodeRow.name, NodeRow.offers).join(
        AssignmentRow, AssignmentRow.node_name == NodeRow.name
    )
    found = session.execute(nodes.where(AssignmentRow.attempt_id == attempt.id))
    if old := sorted(name for name, offers in found if PAUSES not in offers):
        raise LockstepError(
            ErrorCode.CONFLICT,
            f"the agent of {', '.join(old)} is of a version that cannot carry this out",
            next_step="Upgrade Lockstep on the node, or cancel the job.",
        )


def _found(session: Session, job_id: str) -> JobRow:
    job = get(session, job_id)
    assert job is not None
    return job


def _refusal(
    job_id: str,
    job: JobRow | None,
    refused: Mapping[JobState, tuple[str, str]],
    *,
    otherwise: str = "",
) -> LockstepError:
    if job is None:
        return LockstepError(ErrorCode.NOT_FOUND, f"there is no job {job_id!r}")
    if job.state in TERMINAL:
        return LockstepError(
            ErrorCode.CONFLICT,
            f"job {job_id} has already {_ENDED_AS[job.state]}; an ended job cannot be changed",
            next_step="None of its processes is running.",
        )
    why, step = refused.get(job.state, (otherwise, f"It is {job.state}."))
    return LockstepError(ErrorCode.CONFLICT, f"job {job_id} {why}", next_step=step)


def ask(
    session: Session,
    job_id: str,
    intent: Intent,
    *,
    actor: str,
    message: str,
    now: bool = False,
    least_seconds: float = LEAST_SECONDS,
) -> bool:
    """Store the intent for the job's live attempt; its nodes read it with their next renewal.

    Return False, with nothing written, if the job is not live, or the same intent or a stronger one
    is stored already. A user's cancel replaces any other intent, and ``now`` the same one without.

    The grace (``domain.life.grace``) is stored with it. ``least_seconds`` is its smallest value.
    """
    grace, shortens = stops.grace_for(session, job_id, intent, now=now, least_seconds=least_seconds)
    replaced = (*_REPLACED.get(intent, ()), *(intent,) * shortens)
    weaker = or_(JobRow.intent.is_(None), JobRow.intent.in_(replaced))
    statement = (
        update(JobRow)
        .where(JobRow.id == job_id, JobRow.state.in_((JobState.STARTING, JobState.RUNNING)), weaker)
        .values(intent=intent, stop_grace=grace.model_dump(), version=JobRow.version + 1)
        .returning(JobRow.attempt_count)
    )
    row = write(session, statement).one_or_none()
    if row is None:
        return False
    kind = f"{intent.value}_requested"
    events.add(
        session,
        job_id=job_id,
        attempt=row.attempt_count,
        kind=kind,
        message=f"{message}; grace {grace.seconds:g} s ({grace.reason})",
        actor=actor,
        data={"grace_seconds": grace.seconds},
    )
    return True
