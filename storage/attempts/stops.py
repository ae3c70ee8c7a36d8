"""Facts about a job that decide the grace of its stop (``domain.life.grace``).

Not here: the request to stop (``storage.jobs.stopping.ask``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from lockstep.domain.life.grace import REASON_OF, Grace, SaveTime, StoppedJob, grace_of
from lockstep.domain.life.lifecycle import AssignmentState, Intent
from lockstep.storage.attempts.endings import lock_attempt
from lockstep.storage.db.dialects import write
from lockstep.storage.db.tables import AssignmentRow, JobRow


@dataclass(frozen=True)
class StopTerms:
    """Stored facts for the stop of one assignment."""

    save: SaveTime | None
    """Duration of the job's last save, on any node; or a forecast."""
    grace: Grace | None
    """Grace that the requester of the stop was told; None without a request."""


def save_time(stored: dict[str, Any] | None) -> SaveTime | None:
    """Read the column ``jobs.save_time``."""
    return None if stored is None else SaveTime.model_validate(stored)


def grace_for(
    session: Session, job_id: str, intent: Intent, *, now: bool, least_seconds: float
) -> tuple[Grace, bool]:
    """Return the grace of a request to stop a job.

    The second value is True if the request is to kill a job that has time left from another one.
    """
    given = JobRow.spec["stop_grace_seconds"].as_float()
    facts = select(JobRow.kind, JobRow.save_time, JobRow.stop_grace, given)
    found = session.execute(facts.where(JobRow.id == job_id)).one_or_none()
    kind, saved, stored, asked = found or ("script", None, None, None)
    job = StoppedJob(kind, save_time(saved), least_seconds, asked)
    grace = grace_of(job, "now" if now else REASON_OF[intent])
    return grace, now and (stored or {}).get("seconds") != 0.0


def note_save(session: Session, assignment_id: str, token: str, save: SaveTime) -> bool:
    """Store the duration of a job's save. A forecast does not replace a measurement.

    Returns
    -------
    bool
        False, and nothing written, if the token is no longer valid.
    """
    held = select(AssignmentRow.job_id).where(
        AssignmentRow.id == assignment_id,
        AssignmentRow.token == token,
        AssignmentRow.state == AssignmentState.CLAIMED,
    )
    if lock_attempt(session, assignment_id) is None:
        return False
    job_id = session.scalars(held).one_or_none()
    if job_id is None:
        return False
    known = save_time(session.scalars(select(JobRow.save_time).where(JobRow.id == job_id)).one())
    if save.measured or known is None or not known.measured:
        # No new version of the job: its views do not show it.
        write(
            session, update(JobRow).where(JobRow.id == job_id).values(save_time=save.model_dump())
        )
    return True


def terms(session: Session, node_name: str) -> dict[str, StopTerms]:
    """Return the terms of a node's claimed assignments, by their ids."""
    statement = (
        select(AssignmentRow.id, JobRow.save_time, JobRow.stop_grace)
        .join(JobRow, JobRow.id == AssignmentRow.job_id)
        .where(AssignmentRow.node_name == node_name, AssignmentRow.state == AssignmentState.CLAIMED)
    )
    return {
        assignment_id: StopTerms(
            save_time(saved), None if grace is None else Grace.model_validate(grace)
        )
        for assignment_id, saved, grace in session.execute(statement)
    }
