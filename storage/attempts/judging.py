"""Effect of an attempt's end on its job: transition, budget, backoff and plan.

The rules are pure (``domain.life.retrying.judge``). This module reads their input from the rows of
a job whose attempt the caller has locked and ended, and writes their result in the same
transaction.

Not here: the choice of the end that counts (``storage.attempts.endings``).
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import ValidationError
from sqlalchemy import Row, bindparam, select
from sqlalchemy.orm import Session

from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.life.outcomes import RULES, Outcome, RetryClass
from lockstep.domain.life.retrying import AttemptEnd, AttemptHistory, judge
from lockstep.domain.life.timings import Timings
from lockstep.domain.spec.job import Retry
from lockstep.domain.spec.stored import read_tolerantly
from lockstep.domain.training.plan import BatchPlan
from lockstep.storage.attempts import checkpoints, events, transitions
from lockstep.storage.db.clock import now
from lockstep.storage.db.dialects import run
from lockstep.storage.db.tables import AttemptRow

ACTOR = "lockstep"
"""Actor of events without a user."""


def move_job(
    session: Session, attempt: AttemptRow, outcome: Outcome, *, timings: Timings, not_before: float
) -> None:
    """Apply an attempt's outcome to its job, with budget and backoff."""
    job = run(session, _JUDGED, {"of_job": attempt.job_id}).one()
    at = now(session)
    ran_seconds = at - attempt.running_at if attempt.running_at is not None else 0.0
    smaller = _halved(attempt)
    ending = AttemptEnd(
        number=attempt.number,
        ran_seconds=ran_seconds,
        reached=_reached(session, job, outcome),
        retry=_retry_of(job),
        intent=job.intent,
        can_halve=smaller is not None,
    )
    verdict = judge(outcome, _record(job), ending)
    if verdict.note:
        message = f"{outcome.message}; not tried again: {verdict.note}"
        outcome = outcome.model_copy(
            update={"message": message, "advice": verdict.advice or outcome.advice}
        )
    elif verdict.explanation:
        outcome = outcome.model_copy(
            update={"message": f"{outcome.message}; {verdict.explanation}"}
        )
    changes: dict[str, Any] = {
        "outcome": outcome.model_dump(mode="json"),
        "reason": outcome.reason.value,
        "running_seconds": job.running_seconds + ran_seconds,
        **_columns(verdict.record),
    }
    if verdict.transition in ("requeue", "pause"):
        wait = timings.backoff(verdict.failures, who=f"{job.id}/{attempt.number}")
        changes["not_before"] = max(at + wait, not_before)
        if RULES[outcome.reason].retry is RetryClass.RETRY_ELSEWHERE and outcome.node is not None:
            changes["avoid_nodes"] = sorted({*job.avoid_nodes, outcome.node})
        if verdict.halve:
            changes["plan"] = smaller
    if verdict.transition == "succeed" and job.state is JobState.STARTING:
        # A script may end before its rendezvous was stored; succeeded is reached only through
        # running.
        transitions.take(
            session, job.id, "run", attempt=attempt.number, reason="all ranks ran", actor=ACTOR
        )
    taken = transitions.take(
        session,
        job.id,
        verdict.transition,
        attempt=attempt.number,
        reason=outcome.message,
        actor=ACTOR,
        changes=changes,
        data={"reason": outcome.reason.value, "charged": verdict.charged},
    )
    if taken and verdict.halve and smaller is not None:
        _report_halved(session, attempt, smaller)


def _retry_of(job: Row[Any]) -> Retry:
    try:
        return read_tolerantly(job.retry, Retry.model_validate)
    except ValidationError:
        # Another version stored a rule that this one lacks. The end is judged nevertheless.
        return Retry(max=job.retries_max)


def _record(job: Row[Any]) -> AttemptHistory:
    return AttemptHistory(
        charged=job.charged_attempts,
        fruitless=job.fruitless_attempts,
        step=job.progress_step,
        stuck_step=job.stuck_step,
        stuck_nodes=tuple(job.stuck_nodes),
    )


def _columns(record: AttemptHistory) -> dict[str, Any]:
    return {
        "charged_attempts": record.charged,
        "fruitless_attempts": record.fruitless,
        "progress_step": record.step,
        "stuck_step": record.stuck_step,
        "stuck_nodes": list(record.stuck_nodes),
    }


def _reached(session: Session, job: Row[Any], outcome: Outcome) -> int:
    """Return the step from which the next attempt resumes; see ``AttemptEnd.reached``."""
    if job.kind == "script":
        return outcome.last_step or 0
    kept = checkpoints.newest(session, job.id)
    return 0 if kept is None else kept.step


def _halved(attempt: AttemptRow) -> dict[str, Any] | None:
    """The attempt's plan with half the micro-batch.

    None for a script, before it is settled, and at one sample.
    """
    if attempt.plan is None:
        return None
    plan = BatchPlan.model_validate(attempt.plan)
    smaller = None if plan.micro_batch_size is None else plan.halved()
    # The stored plan has more than a plan: the engine's counts.
    return None if smaller is None else {**attempt.plan, **smaller.model_dump(mode="json")}


def _report_halved(session: Session, attempt: AttemptRow, smaller: dict[str, Any]) -> None:
    assert attempt.plan is not None, "what was halved was there"
    message = (
        f"out of memory: the next attempt runs micro-batches of {smaller['micro_batch_size']} "
        f"instead of "
        f"{attempt.plan['micro_batch_size']}; the batch stays {smaller['batch_size']}"
    )
    events.add(
        session,
        job_id=attempt.job_id,
        attempt=attempt.number,
        kind="plan",
        message=message,
        actor=ACTOR,
        data=smaller,
    )


_JUDGED: Final = (
    select(
        *transitions.JOBS.c[
            "id", "kind", "state", "intent", "retries_max", "running_seconds", "avoid_nodes"
        ],
        transitions.JOBS.c.spec["retry"].label("retry"),
        *transitions.JOBS.c[
            "charged_attempts", "fruitless_attempts", "progress_step", "stuck_step", "stuck_nodes"
        ],
    )
    .where(transitions.JOBS.c.id == bindparam("of_job"))
    .with_for_update(key_share=True)
)
