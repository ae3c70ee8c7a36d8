"""Checkpoints that count: a row per checkpoint, written under a valid token.

Not here: their files (``storage.blobs``). A folder without a row is not a checkpoint, whatever is in it.
"""

from __future__ import annotations

import math
from typing import Literal

import uuid_utils
from sqlalchemy import Select, delete, select
from sqlalchemy.orm import Session

from domain.lifecycle import AssignmentState
from domain.retention import best_of, superseded
from domain.sources import JobCheckpoint
from storage import events
from storage.clock import db_now
from storage.dialects import changed, upsert, write
from storage.tables import AssignmentRow, AttemptRow, CheckpointRow


def publish(
    session: Session,
    assignment_id: str,
    token: str,
    *,
    step: int,
    location: str,
    bytes: int,  # noqa: A002 -- the name it has everywhere else
    sha256: str,
    final: bool,
    value: float | None = None,
) -> bool:
    """Make a checkpoint count. Saying it again changes nothing.

    Parameters
    ----------
    session : Session
    assignment_id, token : str
    step, location, bytes, sha256, final
        Of the checkpoint; ``sha256`` is its manifest's.
    value : float, optional
        Of the metric that ``keep_best`` names.

    Returns
    -------
    bool
        False, and nothing written, when the token is not valid any more.
    """
    # The lock keeps the attempt from ending between the check and the insert.
    fence = (
        select(AttemptRow.job_id, AttemptRow.number)
        .join(AssignmentRow, AssignmentRow.attempt_id == AttemptRow.id)
        .where(
            AssignmentRow.id == assignment_id,
            AssignmentRow.token == token,
            AssignmentRow.state == AssignmentState.CLAIMED,
        )
        .with_for_update(key_share=True, of=AttemptRow)
    )
    attempt = session.execute(fence).one_or_none()
    if attempt is None:
        return False
    written = (
        upsert(session, CheckpointRow)
        .values(
            id=str(uuid_utils.uuid7()),
            job_id=attempt.job_id,
            attempt=attempt.number,
            step=step,
            location=location,
            bytes=bytes,
            sha256=sha256,
            # No database compares NaN as the others do, and it is never best anyway.
            value=value if value is not None and math.isfinite(value) else None,
            final=final,
            created_at=db_now(),
        )
        .on_conflict_do_nothing()
    )
    if changed(session, written) == 1:
        events.add(
            session,
            job_id=attempt.job_id,
            attempt=attempt.number,
            kind="checkpoint",
            message=f"{'final checkpoint' if final else 'checkpoint'} of step {step}",
            actor="lockstep",
            data={"step": step, "bytes": bytes, "sha256": sha256, "final": final},
        )
    return True


def of_job(session: Session, job_id: str) -> list[CheckpointRow]:
    """A job's checkpoints, newest first."""
    return list(session.scalars(_newest_first(job_id)))


def ids(session: Session, job_id: str) -> list[str]:
    """The ids of a job's checkpoints, which say everything of the list: rows are added and deleted, never changed."""
    return list(
        session.scalars(select(CheckpointRow.id).where(CheckpointRow.job_id == job_id).order_by(CheckpointRow.id))
    )


def newest(session: Session, job_id: str) -> CheckpointRow | None:
    """The checkpoint that a new attempt goes on from."""
    return session.scalars(_newest_first(job_id).limit(1)).one_or_none()


def best(newest_first: list[CheckpointRow]) -> CheckpointRow | None:
    """The best of a job's checkpoints, as :func:`of_job` gives them; None where ``keep_best`` was not asked for."""
    return best_of(newest_first, _value)


def pick(newest_first: list[CheckpointRow], which: int | Literal["best"] | None) -> CheckpointRow | None:
    """The checkpoint of a step, the best, or the newest; of two of one step, the later attempt's."""
    if which == "best":
        return best(newest_first)
    return next((row for row in newest_first if which is None or row.step == which), None)


def named(session: Session, source: JobCheckpoint) -> CheckpointRow | None:
    """The checkpoint that ``source`` means; its job is given by its full id."""
    return pick(of_job(session, source.job), source.which)


def prune(session: Session, job_id: str, keep_last: int) -> list[str]:
    """Forget all but the newest checkpoints, and the best where they have values.

    Returns
    -------
    list of str
        Locations whose files may be deleted once this is committed.
    """
    old = superseded(of_job(session, job_id), keep_last, _value)
    if old:
        write(session, delete(CheckpointRow).where(CheckpointRow.id.in_([checkpoint.id for checkpoint in old])))
    return [checkpoint.location for checkpoint in old]


def _newest_first(job_id: str) -> Select[CheckpointRow]:
    return (
        select(CheckpointRow)
        .where(CheckpointRow.job_id == job_id)
        # A later attempt may have gone back to an earlier step; what it saved there is what it trained.
        .order_by(CheckpointRow.attempt.desc(), CheckpointRow.step.desc())
    )


def _value(checkpoint: CheckpointRow) -> float | None:
    return checkpoint.value
