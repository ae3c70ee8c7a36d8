"""Curves of a job that another one continues, as attempt 0 of that one.

The points are copied, so every reader finds one curve, and it stays when the first job is deleted.
As between attempts of one job, the first step that the new job reports hides the later ones.

Not here: the choice of the points that are visible (``storage.series.series_query``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session, undefer

from lockstep.storage.db.clock import db_now
from lockstep.storage.db.database import Database
from lockstep.storage.db.dialects import upsert, write
from lockstep.storage.db.series_tables import SeriesChunkRow, SeriesLatestRow, StreamRow, of_kind
from lockstep.storage.series import definitions, series, streams
from lockstep.storage.series.packing import unpack
from lockstep.storage.series.series_query import visible_until

ATTEMPT: Final = 0
CHUNKS_AT_ONCE: Final = 500
"""Of one transaction: about 2 MB."""


def inherit(database: Database, *, of: Sequence[str], by: str) -> None:
    """Copy the current curves of a job that has ended, unless the other one has points.

    Also the definitions of its series. Repeatable.

    Parameters
    ----------
    database : Database
    of : sequence of str
        IDs of jobs. Those of the first one that has points are copied.
    by : str
    """
    with database.read_series() as session:
        if _is_done(session, by):
            return
        former = next((job_id for job_id in of if _names(session, job_id)), "")
        names = _names(session, former)
        first_step = _first_step(session, former)
        until = visible_until(session, [former])
        defined = definitions.of_jobs(session, [former]).get(former, {})
    for name in names:
        count = 0
        for attempt in sorted(number for job_id, number in until if job_id == former):
            for rows in _batches(database, former, name, attempt, until[former, attempt]):
                count = _store(database, by, name, rows, count)
    with database.series() as session:
        row = {"assignment_id": by, "job_id": by, "attempt": ATTEMPT, "token": streams.NOBODY}
        made = upsert(session, StreamRow).values(
            **row, sealed=True, opened_at=db_now(), first_step=first_step
        )
        write(session, made.on_conflict_do_nothing())
        definitions.store(session, by, defined)
        series.bump(session, by)


def _is_done(session: Session, job_id: str) -> bool:
    copied = or_(StreamRow.attempt == ATTEMPT, StreamRow.first_step.is_not(None))
    mine = select(StreamRow.job_id).where(StreamRow.job_id == job_id, copied)
    return session.scalars(mine).first() is not None


def _names(session: Session, job_id: str) -> list[str]:
    """Return the job's own series. Those of ``system/`` belong to its nodes."""
    own = SeriesLatestRow.job_id == job_id, of_kind(SeriesLatestRow.name, system=False)
    return sorted(session.scalars(select(SeriesLatestRow.name).where(*own)))


def _first_step(session: Session, job_id: str) -> int | None:
    return session.scalars(
        select(func.min(StreamRow.first_step)).where(StreamRow.job_id == job_id)
    ).one()


def _batches(
    database: Database, job_id: str, name: str, attempt: int, until: float
) -> Iterator[list[dict[str, Any]]]:
    """Yield rows of chunks with the points up to a step."""
    whose = (
        SeriesChunkRow.job_id == job_id,
        SeriesChunkRow.name == name,
        SeriesChunkRow.attempt == attempt,
    )
    behind = -1
    while True:
        some = select(SeriesChunkRow).where(*whose, SeriesChunkRow.seq > behind)
        some = some.order_by(SeriesChunkRow.seq).limit(CHUNKS_AT_ONCE)
        with database.read_series() as session:
            whole = undefer(SeriesChunkRow.points), undefer(SeriesChunkRow.summary)
            found = session.scalars(some.options(*whole)).all()
        if not found:
            return
        behind = found[-1].seq
        yield [row for chunk in found if (row := _visible(chunk, until)) is not None]


def _visible(chunk: SeriesChunkRow, until: float) -> dict[str, Any] | None:
    """Return the chunk's values, without the points after a step; None if none is left."""
    if chunk.last_step <= until:
        columns = SeriesChunkRow.__table__.columns.keys()
        return {column: getattr(chunk, column) for column in columns if column != "id"}
    points = unpack(chunk.points).within(-math.inf, until)
    if not len(points):
        return None
    return series.chunk_row(chunk.job_id, chunk.attempt, chunk.name, chunk.seq, points)


def _store(
    database: Database, job_id: str, name: str, rows: list[dict[str, Any]], count: int
) -> int:
    """Store a batch behind ``count`` points, unless it is stored. Return how many there are now."""
    moved = []
    for row in rows:
        moved.append({**row, "job_id": job_id, "attempt": ATTEMPT, "seq": count})
        count += row["point_count"]
    if not moved:
        return count
    last = moved[-1]
    with database.series() as session:
        latest = session.get(SeriesLatestRow, (job_id, name))
        if latest is None or latest.point_count < count:
            bounds = (
                [moved] if latest is None else [moved, [{"min": latest.min, "max": latest.max}]]
            )
            newest = {
                "attempt": ATTEMPT,
                "step": last["end_step"],
                "time": last["end_time"],
                "value": last["end_value"],
                "min": _extreme(min, (row["min"] for rows in bounds for row in rows)),
                "max": _extreme(max, (row["max"] for rows in bounds for row in rows)),
                "point_count": count,
            }
            write(session, upsert(session, SeriesChunkRow).values(moved))
            key = {"job_id": job_id, "name": name}
            stored = upsert(session, SeriesLatestRow).values(**key, **newest)
            write(session, stored.on_conflict_do_update(index_elements=list(key), set_=newest))
    return count


def _extreme(
    choose: Callable[[Iterable[float]], float], values: Iterable[float | None]
) -> float | None:
    numbers = [value for value in values if value is not None]
    return choose(numbers) if numbers else None
