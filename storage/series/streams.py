"""Fence and offsets of an attempt's uploads.

Each assignment has a stream. An append gives the stream's token and the expected offset in one
guarded update; the points or lines follow in the same transaction. A batch that is sent twice is
stored once, and a batch of a writer that lost its lease is never stored.

A stream is open while it is not sealed and no later attempt of its job has one. The second
condition needs no action: once a new attempt has opened its stream, no earlier one can append, even
if its sealing program died.

Opening is safe in every order, although it depends on the other database:

1. Only a ``Writer`` can open, and the jobs database returns one only to the holder of a claimed
   assignment.
2. Every ended assignment is sealed afterwards, opened or not: by its node before it releases the
   devices, and by the reconcile cycle for all that have ended and are not released. A job is placed
   again only after that.
3. A valid writer that opens after its assignment has ended either precedes the seal, which then
   closes the stream, or follows it and finds the stream sealed.

Not here: the appended data (``storage.series.series``, ``storage.logs.logs``).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Final

from sqlalchemy import Executable, bindparam, exists, func, select, update
from sqlalchemy.orm import Session

from lockstep.domain.life.held_time import StepRange
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.dialects import changed, for_each, run, table_of, upsert, write
from lockstep.storage.db.series_tables import LogTotalRow, StreamOffsetRow, StreamRow

SYSTEM_SOURCE: Final = "system"
"""The source whose series are those of ``domain.training.metrics.SYSTEM``; no other source's
are."""
NOBODY: Final = ""
"""Token of a stream that was sealed before it was opened."""


@dataclass(frozen=True)
class Writer:
    """Right to open a stream, read from the jobs database."""

    assignment_id: str
    job_id: str
    attempt: int
    token: str


@dataclass(frozen=True)
class StreamState:
    """Stored offsets of an assignment's files, from which an uploader continues."""

    job_id: str
    attempt: int
    sealed: bool
    metrics_offset: int
    """Bytes of the metrics spool."""
    events_offset: int
    """Bytes of the events spool."""
    log_segment: int
    log_offset: int
    """Bytes into that segment."""
    next_line: int
    """Lines the attempt has so far, and so the number of the next."""
    last_step: int | None
    """Step of the last stored record: a script's line without a step is counted on from it."""
    points_dropped: int
    """Points beyond the limits of names and of points per job."""
    offsets: dict[str, int]
    """Stored offset of each further source; sources without stored data have no entry."""


def open_stream(session: Session, writer: Writer) -> bool:
    """Open an assignment's stream, or find it open; this fences every earlier attempt of the job.

    Returns
    -------
    bool
        False when it is sealed, has another token, or a later attempt has a stream.
    """
    run(session, _INSERTED, asdict(writer))
    return is_open(session, writer.assignment_id, writer.token)


def is_open(session: Session, assignment_id: str, token: str) -> bool:
    """Return whether a writer with this token may add to a stream."""
    mine = {"of_assignment": assignment_id, "of_token": token}
    return run(session, _IS_OPEN, mine).one_or_none() is not None


def seal(session: Session, assignment_id: str, *, job_id: str, attempt: int) -> bool:
    """Refuse everything further for this stream, also where it was never opened.

    False when it is sealed already.
    """
    whose = {"assignment_id": assignment_id, "job_id": job_id, "attempt": attempt, "token": NOBODY}
    return run(session, _SEALED, whose).rowcount == 1


def sealed(session: Session, assignment_ids: Collection[str]) -> set[str]:
    """Return the assignments whose streams are sealed."""
    statement = select(StreamRow.assignment_id).where(
        StreamRow.assignment_id.in_(assignment_ids), StreamRow.sealed.is_(True)
    )
    return set(session.scalars(statement)) if assignment_ids else set()


def state(session: Session, assignment_id: str) -> StreamState | None:
    """Return a stream's offsets, or None if it was neither opened nor sealed."""
    stream = session.get(StreamRow, assignment_id, populate_existing=True)
    if stream is None:
        return None
    lines = session.execute(
        select(LogTotalRow.lines).where(
            LogTotalRow.job_id == stream.job_id, LogTotalRow.attempt == stream.attempt
        )
    ).scalar_one_or_none()
    return StreamState(
        job_id=stream.job_id,
        attempt=stream.attempt,
        sealed=stream.sealed,
        metrics_offset=stream.metrics_offset,
        events_offset=stream.events_offset,
        log_segment=stream.log_segment,
        log_offset=stream.log_offset,
        next_line=lines or 0,
        last_step=stream.last_step,
        points_dropped=stream.points_dropped,
        offsets=_offsets(session, assignment_id),
    )


def steps(session: Session, job_ids: Collection[str]) -> dict[tuple[str, int], StepRange]:
    """Return the steps that attempts of these jobs reported, by job and attempt."""
    statement = (
        select(
            StreamRow.job_id,
            StreamRow.attempt,
            func.min(StreamRow.first_step),
            func.max(StreamRow.last_step),
        )
        .where(StreamRow.job_id.in_(job_ids))
        .group_by(StreamRow.job_id, StreamRow.attempt)
    )
    if not job_ids:
        return {}
    return {
        (job_id, attempt): StepRange(first, last)
        for job_id, attempt, first, last in session.execute(statement)
        if first is not None and last is not None
    }


def advance_events(
    session: Session, *, assignment_id: str, token: str, offset_before: int, offset_after: int
) -> bool:
    """Note that the engine's events up to an offset have been applied to the jobs database.

    Applying an event twice changes nothing there, so this may be noted after it, in a transaction
    of its own.

    Returns
    -------
    bool
        False as for every append: stale token, sealed, or noted already.
    """
    return (
        advance(
            session,
            assignment_id,
            token,
            {"events_offset": offset_before},
            {"events_offset": offset_after},
        )
        is not None
    )


def _offsets(session: Session, assignment_id: str) -> dict[str, int]:
    statement = select(StreamOffsetRow.source, StreamOffsetRow.stored_offset).where(
        StreamOffsetRow.assignment_id == assignment_id
    )
    return {row[0]: row[1] for row in session.execute(statement) if row[1] != 0}


def advance_source(
    session: Session, assignment_id: str, token: str, source: str, *, before: int, after: int
) -> Advanced | None:
    """As :func:`advance`, for a source whose offset is a row of its own.

    The stream's row is locked first, as there.
    """
    stream = advance(session, assignment_id, token, {}, {"sealed": False})
    if stream is None:
        return None
    row = upsert(session, StreamOffsetRow).values(
        assignment_id=assignment_id, source=source, stored_offset=0
    )
    write(session, row.on_conflict_do_nothing())
    at = (
        StreamOffsetRow.assignment_id == assignment_id,
        StreamOffsetRow.source == source,
        StreamOffsetRow.stored_offset == before,
    )
    return (
        stream
        if changed(session, update(StreamOffsetRow).where(*at).values(stored_offset=after)) == 1
        else None
    )


@dataclass(frozen=True)
class Advanced:
    """A stream whose offset was just moved; it is locked until the transaction ends."""

    job_id: str
    attempt: int
    first_step: int | None


def advance(
    session: Session, assignment_id: str, token: str, before: dict[str, Any], after: dict[str, Any]
) -> Advanced | None:
    """Move a stream's columns from ``before`` to ``after`` under this token.

    It is the first statement of every append: the rest of the transaction runs once, and only for
    the valid writer.
    """
    values = {"of_assignment": assignment_id, "of_token": token}
    values |= {f"before_{column}": value for column, value in before.items()}
    values |= {f"after_{column}": value for column, value in after.items()}
    row = run(session, _advancing(tuple(before), tuple(after)), values).one_or_none()
    return None if row is None else Advanced(row.job_id, row.attempt, row.first_step)


# --- statements

_STREAM: Final = table_of(StreamRow)
_LATER: Final = _STREAM.alias("later")
_OPEN: Final = (
    _STREAM.c.assignment_id == bindparam("of_assignment"),
    _STREAM.c.token == bindparam("of_token"),
    _STREAM.c.sealed.is_(False),
    ~exists()
    .where(_LATER.c.job_id == _STREAM.c.job_id, _LATER.c.attempt > _STREAM.c.attempt)
    .correlate(_STREAM),
)
_IS_OPEN: Final = select(_STREAM.c.job_id).where(*_OPEN)
_NOTHING_YET: Final = {
    **dict.fromkeys(
        ("metrics_offset", "events_offset", "log_segment", "log_offset", "points_dropped"), 0
    ),
    "opened_at": db_now(),
}
_INSERTED: Final = for_each(
    StreamRow, lambda insert: insert.values(**_NOTHING_YET, sealed=False).on_conflict_do_nothing()
)
_SEALED: Final = for_each(
    StreamRow,
    lambda insert: (
        insert.values(**_NOTHING_YET, sealed=True, sealed_at=db_now())
        .on_conflict_do_update(
            index_elements=["assignment_id"],
            set_={"sealed": True, "sealed_at": db_now()},
            where=_STREAM.c.sealed.is_(False),
        )
        .execution_options(preserve_rowcount=True)
    ),
)


@cache
def _advancing(before: tuple[str, ...], after: tuple[str, ...]) -> Executable:
    """The statement of :func:`advance` for these columns."""
    at = [_STREAM.c[column] == bindparam(f"before_{column}") for column in before]
    moved = (
        update(_STREAM)
        .where(*_OPEN, *at)
        .values({column: bindparam(f"after_{column}") for column in after})
    )
    return moved.returning(_STREAM.c.job_id, _STREAM.c.attempt, _STREAM.c.first_step)
