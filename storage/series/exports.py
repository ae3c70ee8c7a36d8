"""Export of every point of a job's series, in pieces.

Between two pieces no connection and no transaction is held: the reader may be slow, and a series
may exceed memory. Chunks may be merged meanwhile; points keep their numbers, and the reader
continues after the last number. The set of attempts, and the points that each hides of earlier
ones, are those at the start; points that the newest attempt stores meanwhile may be included.

Not here: reduction for charts (``storage.series.series_query``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from lockstep.storage.db.series_tables import SeriesChunkRow, SeriesLatestRow, StreamRow
from lockstep.storage.series.packing import unpack
from lockstep.storage.series.points import Points
from lockstep.storage.series.series_query import CHUNK, Attempts, visible_until

PIECE_CHUNKS: Final = 64
"""Read at once, and more than there can be that are not full: 32,768 points at most, 0.8 MB."""
_TABLE: Final = SeriesChunkRow.__table__.c
_PIECE: Final = (
    select(_TABLE.seq, _TABLE.points)
    .where(*(_TABLE[column] == bindparam(column) for column in ("job_id", "name", "attempt")))
    .where(_TABLE.seq > bindparam("behind"))
    .order_by(_TABLE.seq)
    .limit(PIECE_CHUNKS)
)


class Piece(NamedTuple):
    """Consecutive points of one series of one attempt."""

    name: str
    attempt: int
    points: Points


def every_point(
    opened: Callable[[], AbstractContextManager[Session]],
    job_id: str,
    *,
    names: Collection[str] | None = None,
    from_step: int | None = None,
    to_step: int | None = None,
    attempts: Attempts = "current",
) -> Iterator[Piece]:
    """The points of a job by name, attempt, and the order in which they were stored.

    Chosen as by ``series_query.read``; ``current`` and ``visible`` choose the same points.
    """
    low = -math.inf if from_step is None else from_step
    high = math.inf if to_step is None else to_step
    with opened() as session:
        latest = select(SeriesLatestRow.name).where(SeriesLatestRow.job_id == job_id)
        there = sorted(name for name in session.scalars(latest) if names is None or name in names)
        numbers = sorted(
            session.scalars(select(StreamRow.attempt).where(StreamRow.job_id == job_id).distinct())
        )
        ends = {} if attempts == "all" else visible_until(session, [job_id])
    for name in there:
        for attempt in numbers:
            end = min(high, ends.get((job_id, attempt), math.inf))
            for points in _attempt(opened, job_id, name, attempt):
                wanted = points.within(low, end)
                if len(wanted):
                    yield Piece(name, attempt, wanted)


def _attempt(
    opened: Callable[[], AbstractContextManager[Session]], job_id: str, name: str, attempt: int
) -> Iterator[Points]:
    seen = 0
    while True:
        whose = {"job_id": job_id, "name": name, "attempt": attempt}
        with opened() as session:
            # One that holds the point behind the last one seen begins less than a chunk before it.
            rows = session.connection().execute(_PIECE, {**whose, "behind": seen - CHUNK}).all()
        before = seen
        for seq, packed in rows:
            points = unpack(packed)
            fresh = points.part(max(0, seen - seq), len(points))
            if len(fresh):
                seen = seq + len(points)
                yield fresh
        if seen == before:
            return
