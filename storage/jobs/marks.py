"""Marks that people give a job: labels, a note, a star and a priority; nothing of its training.

Not here: finding jobs by them (``storage.jobs.conditions``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import Session

from lockstep.domain.errors import ErrorCode, FieldError, LockstepError
from lockstep.domain.job_marks import JobMarks
from lockstep.domain.life.lifecycle import TERMINAL
from lockstep.domain.limits import LABELS_PER_JOB_MAX
from lockstep.storage.attempts import events
from lockstep.storage.db.dialects import run, table_of, write
from lockstep.storage.db.listing_tables import JobLabelRow
from lockstep.storage.db.tables import JobRow

_LABELLED: Final = insert(table_of(JobLabelRow))


def give(
    session: Session, job_id: str, marks: JobMarks, *, actor: str
) -> tuple[JobRow, dict[str, Any]] | None:
    """Give a job marks.

    Other marks of the same request that come at once wait for each other.

    Returns
    -------
    (JobRow, dict) or None
        The job, and its marks before and after; None if it has them already.

    Raises
    ------
    LockstepError
        ``INVALID`` if it would have too many labels; ``CONFLICT`` for another priority of a job
        that has ended.
    """
    job = session.scalars(
        select(JobRow)
        .where(JobRow.id == job_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    ).one()
    before: dict[str, Any] = {
        "labels": labels_of(job),
        "note": job.note,
        "starred": job.starred,
        "priority": job.priority,
    }
    after: dict[str, Any] = {
        "labels": _labels(before["labels"], marks.labels or {}),
        "note": before["note"] if "note" not in marks.model_fields_set else marks.note or None,
        "starred": before["starred"] if marks.starred is None else marks.starred,
        "priority": before["priority"] if marks.priority is None else marks.priority,
    }
    if after == before:
        return None
    if after["labels"] != before["labels"]:
        write(session, delete(JobLabelRow).where(JobLabelRow.job_id == job_id))
        add_labels(session, job_id, after["labels"])
    if after["priority"] != before["priority"]:
        _give_priority(session, job, after["priority"], actor)
    differing = [name for name in after if after[name] != before[name]]
    changed = update(JobRow).where(JobRow.id == job_id)
    values = {name: after[name] for name in differing}
    write(session, changed.values(**values, version=JobRow.version + 1))
    session.refresh(job)
    return job, {
        "before": {name: before[name] for name in differing},
        "after": values,
    }


def _give_priority(session: Session, job: JobRow, priority: int, actor: str) -> None:
    """Add the event of another priority. The caller writes the value."""
    if job.state in TERMINAL:
        raise LockstepError(
            ErrorCode.CONFLICT,
            f"job {job.id} has already ended; its priority cannot be changed",
            next_step="A clone can have another: lockstep clone JOB --set priority=N",
        )
    events.add(
        session,
        job_id=job.id,
        attempt=None,
        kind="priority",
        message=f"{actor} changed the priority from {job.priority} to {priority}",
        actor=actor,
        data={"before": job.priority, "after": priority},
    )


def labels_of(job: JobRow) -> dict[str, str]:
    """Return the labels of a job: those of its spec until one is changed."""
    return dict(job.spec.get("labels") or {}) if job.labels is None else dict(job.labels)


def add_labels(session: Session, job_id: str, labels: Mapping[str, str]) -> None:
    """Write the rows by which a job is found by its labels."""
    rows = [{"job_id": job_id, "key": key, "value": value} for key, value in labels.items()]
    if rows:
        run(session, _LABELLED, rows)


def _labels(before: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    after = {key: value for key, value in {**before, **changes}.items() if value is not None}
    if len(after) > LABELS_PER_JOB_MAX:
        message = f"expected at most {LABELS_PER_JOB_MAX} labels, got {len(after)}"
        raise LockstepError(
            ErrorCode.INVALID,
            f"labels: {message}",
            next_step="Remove some: null as the value removes a label.",
            fields=(FieldError("/labels", message),),
        )
    return after
