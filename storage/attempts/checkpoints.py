"""Checkpoints that count: a row per checkpoint, written under a valid token.

A database that was restored from a backup names checkpoints that have been deleted since, and lacks
those that were published since. The rows are then made to agree with the notes beside the files
(``storage.objects.published``).

Not here: their files (``storage.objects.blobs``). A folder with neither row nor note was never
published.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import uuid_utils
from sqlalchemy import Row, Select, delete, select
from sqlalchemy.orm import Session

from lockstep.domain.life.lifecycle import AssignmentState
from lockstep.domain.life.retention import best_of, superseded
from lockstep.domain.spec.init_from import JobCheckpoint
from lockstep.storage.attempts import events
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.dialects import changed, upsert, write
from lockstep.storage.db.tables import AssignmentRow, AttemptRow, CheckpointRow
from lockstep.storage.objects.published import Note


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
    attempt = fenced(session, assignment_id, token)
    if attempt is None:
        return False
    note = Note(
        attempt=attempt.number, step=step, bytes=bytes, sha256=sha256, final=final, value=value
    )
    if _add(session, attempt.job_id, location, note):
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


def reconcile(
    session: Session,
    assignment_id: str,
    token: str,
    *,
    found: Sequence[tuple[str, Note]],
    gone: Collection[str],
) -> bool:
    """Make a job's rows agree with the store, and add one event if that changes any.

    Parameters
    ----------
    session : Session
    assignment_id, token : str
    found : sequence of (location, Note)
        Published checkpoints that are in the store; those without a row get one.
    gone : collection of str
        Ids of rows whose checkpoints are not in the store any more. These rows are deleted.

    Returns
    -------
    bool
        False, and nothing written, when the token is not valid any more.
    """
    attempt = fenced(session, assignment_id, token)
    if attempt is None:
        return False
    added = [note.step for location, note in found if _add(session, attempt.job_id, location, note)]
    rows = delete(CheckpointRow).where(
        CheckpointRow.job_id == attempt.job_id, CheckpointRow.id.in_(gone)
    )
    deleted = sorted(write(session, rows.returning(CheckpointRow.step)).scalars()) if gone else []
    if added or deleted:
        changes = [f"published again: {_steps(added)}"] if added else []
        changes += (
            [f"deleted in the store and removed from the list: {_steps(deleted)}"]
            if deleted
            else []
        )
        events.add(
            session,
            job_id=attempt.job_id,
            attempt=attempt.number,
            kind="checkpoints_reconciled",
            message="The checkpoints in the database differed from those in the store. "
            f"{'; '.join(changes).capitalize()}.",
            actor="lockstep",
            data={"found": sorted(added), "gone": deleted},
        )
    return True


def _steps(steps: Sequence[int]) -> str:
    return f"step{'s' if len(steps) > 1 else ''} {', '.join(map(str, sorted(steps)))}"


def fenced(session: Session, assignment_id: str, token: str) -> Row[str, int, int] | None:
    """Return job and number of the attempt whose token this is, and its node rank, locked.

    None if the token is not valid any more.
    """
    # The lock keeps the attempt from ending between the check and the insert.
    fence = (
        select(AttemptRow.job_id, AttemptRow.number, AssignmentRow.node_rank)
        .join(AssignmentRow, AssignmentRow.attempt_id == AttemptRow.id)
        .where(
            AssignmentRow.id == assignment_id,
            AssignmentRow.token == token,
            AssignmentRow.state == AssignmentState.CLAIMED,
        )
        .with_for_update(key_share=True, of=AttemptRow)
    )
    return session.execute(fence).one_or_none()


def _add(session: Session, job_id: str, location: str, note: Note) -> bool:
    """Write the row of a checkpoint; False if it is there already.

    The row of another checkpoint at the same location is replaced: after a restore of the database
    an attempt's number is reused. The new row has a new id (:func:`ids`).
    """
    place = (
        CheckpointRow.job_id == job_id,
        CheckpointRow.attempt == note.attempt,
        CheckpointRow.step == note.step,
    )
    write(session, delete(CheckpointRow).where(*place, CheckpointRow.sha256 != note.sha256))
    row = upsert(session, CheckpointRow).values(
        id=str(uuid_utils.uuid7()),
        job_id=job_id,
        location=location,
        created_at=db_now(),
        **note.model_dump(),
    )
    return changed(session, row.on_conflict_do_nothing()) == 1


def of_job(session: Session, job_id: str) -> list[CheckpointRow]:
    """A job's checkpoints, newest first."""
    return list(session.scalars(_newest_first(job_id)))


def ids(session: Session, job_id: str) -> list[str]:
    """Return the ids of a job's checkpoints, which identify the list.

    Rows are added and deleted, never changed.
    """
    return list(
        session.scalars(
            select(CheckpointRow.id)
            .where(CheckpointRow.job_id == job_id)
            .order_by(CheckpointRow.id)
        )
    )


def newest(session: Session, job_id: str) -> CheckpointRow | None:
    """The checkpoint that a new attempt resumes from."""
    return session.scalars(_newest_first(job_id).limit(1)).one_or_none()


def best(newest_first: list[CheckpointRow]) -> CheckpointRow | None:
    """The best of a job's checkpoints, as :func:`of_job` gives them.

    None where ``keep_best`` was not asked for.
    """
    return best_of(newest_first, _value)


def pick(
    newest_first: list[CheckpointRow], which: int | Literal["best"] | None
) -> CheckpointRow | None:
    """The checkpoint of a step, the best, or the newest.

    Of two of one step, the later attempt's.
    """
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
        write(
            session,
            delete(CheckpointRow).where(
                CheckpointRow.id.in_([checkpoint.id for checkpoint in old])
            ),
        )
    return [checkpoint.location for checkpoint in old]


def _newest_first(job_id: str) -> Select[CheckpointRow]:
    return (
        select(CheckpointRow)
        .where(CheckpointRow.job_id == job_id)
        # A later attempt may have resumed from an earlier step; its checkpoints are the valid ones.
        .order_by(CheckpointRow.attempt.desc(), CheckpointRow.step.desc())
    )


def _value(checkpoint: CheckpointRow) -> float | None:
    return checkpoint.value
