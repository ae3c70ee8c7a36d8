"""Queries of series for charts.

Every point, or buckets, of a range of steps, of one or several jobs.

The work depends on the request, not on the stored amount. The header of each chunk in the range is
read. For buckets of 512 points or more the headers suffice; from 32 on, the summaries of chunks;
only below that chunks are opened, with at most 32 times the requested number of points.

Not here: writes (``storage.series.series``), buckets and their form (``storage.series.points``,
``storage.series.packing``), and whole series (``storage.series.exports``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import Row, Select, bindparam, case, func, or_, select
from sqlalchemy.orm import Session

from lockstep.domain import limits
from lockstep.domain.training.definitions import Direction, Kind
from lockstep.domain.training.series import Metadata, metadata_of
from lockstep.storage.db.series_tables import SeriesChunkRow, StreamRow
from lockstep.storage.series import definitions
from lockstep.storage.series.packing import SUMMARY_POINTS, unpack, unpack_summaries
from lockstep.storage.series.points import Buckets, Points

CHUNK: Final = limits.METRIC_POINTS_PER_CHUNK
Attempts = Literal["current", "visible", "all"]


@dataclass(frozen=True)
class SeriesData:
    """Series as in ``domain.series_views.SeriesView``, with non-finite numbers as floats."""

    name: str
    unit: str
    kind: Kind
    direction: Direction
    attempt: int
    count: int
    non_finite: int
    step: list[int]
    time: list[float]
    value: list[float]
    min: list[float]
    max: list[float]


class Header(NamedTuple):
    """A chunk's header."""

    id: int
    job_id: str
    name: str
    attempt: int
    seq: int
    first_step: int
    last_step: int
    point_count: int
    nan_count: int
    non_finite_count: int
    min: float | None
    max: float | None
    end_step: int
    end_time: float
    end_value: float | None


# Statements are put together once: for each request that takes as long as to run them.
_TABLE: Final = SeriesChunkRow.__table__.c
_STREAMS: Final = StreamRow.__table__.c
_HEADERS: Final = (
    select(*(_TABLE[column] for column in Header._fields))
    .where(_TABLE.job_id.in_(bindparam("job_ids", expanding=True)))
    .order_by(_TABLE.job_id, _TABLE.name, _TABLE.attempt, _TABLE.seq)
)
_NAMED: Final = _TABLE.name.in_(bindparam("names", expanding=True))
NAMES_PER_STATEMENT: Final = 100
"""Each with a count of its own to begin at: SQLite nests at most 1,000 conditions."""
_FROM: Final = _TABLE.last_step >= bindparam("from_step")
_TO: Final = _TABLE.first_step <= bindparam("to_step")
_CONSECUTIVE: Final = (
    *(_TABLE[column] == bindparam(column) for column in ("job_id", "name", "attempt")),
    _TABLE.seq.between(bindparam("first"), bindparam("last")),
)
_SUMMARIES: Final = select(
    _TABLE.seq, _TABLE.summary, case((_TABLE.summary.is_(None), _TABLE.points), else_=None)
).where(*_CONSECUTIVE)
_POINTS: Final = select(_TABLE.seq, _TABLE.points).where(*_CONSECUTIVE)
_FIRST_STEPS: Final = (
    select(_STREAMS.job_id, _STREAMS.attempt, func.min(_STREAMS.first_step))
    .where(
        _STREAMS.job_id.in_(bindparam("job_ids", expanding=True)), _STREAMS.first_step.is_not(None)
    )
    .group_by(_STREAMS.job_id, _STREAMS.attempt)
    .order_by(_STREAMS.job_id, _STREAMS.attempt.desc())
)


class Selection(NamedTuple):
    """Selection of a chunk's points."""

    from_step: float
    to_step: float
    seq: int = 0
    """The first point that is wanted, as chunks number them."""

    def hold(self, chunk: Header) -> bool:
        """Return whether all points of the chunk are selected."""
        return (
            self.from_step <= chunk.first_step
            and chunk.last_step <= self.to_step
            and self.seq <= chunk.seq
        )

    def of(self, chunk: Header, points: Points) -> Points:
        """Return the selected points of a chunk."""
        later = points.part(max(0, self.seq - chunk.seq), len(points))
        return later.within(self.from_step, self.to_step)


_Piece = tuple[Header, Selection]
_Run = Sequence[_Piece]
"""Of one attempt at one series."""


def read(
    session: Session,
    job_id: str,
    *,
    names: Collection[str] | None = None,
    from_step: int | None = None,
    to_step: int | None = None,
    max_points: int = limits.SERIES_POINTS_MAX,
    attempts: Attempts = "current",
    after: Mapping[str, int] | None = None,
) -> list[SeriesData]:
    """Series of one job: see :func:`read_jobs`.

    Parameters
    ----------
    after : mapping of str to int, optional
        By series, how many of its points to leave out: those that were stored first, of all
        attempts together. A series that is not named here is not read.
    """
    found = read_jobs(
        session,
        [job_id],
        names=names,
        from_step=from_step,
        to_step=to_step,
        max_points=max_points,
        attempts=attempts,
        after=after,
    )
    return found[job_id]


def read_jobs(
    session: Session,
    job_ids: Collection[str],
    *,
    names: Collection[str] | None = None,
    from_step: int | None = None,
    to_step: int | None = None,
    max_points: int = limits.SERIES_POINTS_MAX,
    attempts: Attempts = "current",
    after: Mapping[str, int] | None = None,
) -> dict[str, list[SeriesData]]:
    """Series of some jobs, by job.

    Every point, or at most ``max_points`` buckets of points per series.

    A bucket's ``min`` and ``max`` are its extremes among the values that are numbers (infinities
    are, so they show there); its ``value`` is the last one, or NaN if any value in the bucket is.
    So no spike and no NaN can vanish from a chart, however few points are asked for.

    Parameters
    ----------
    session : Session
    job_ids : collection of str
    names : collection of str, optional
        All series if not given.
    from_step, to_step : int, optional
        Selection, both included.
    max_points : int
        At least 1.
    attempts : {"current", "visible", "all"}
        ``current`` reads one curve per series: of an earlier attempt only the steps before the
        first one that a later attempt reported, because the later one trained the rest again.
        ``visible`` reads the same points as a curve of each attempt, ``all`` each whole attempt.
    after : mapping of str to int, optional
        See :func:`read`; for one job.
    """
    low = -math.inf if from_step is None else from_step
    high = math.inf if to_step is None else to_step
    ends = {} if attempts == "all" else visible_until(session, job_ids)
    bounds = {key: Selection(low, min(high, end)) for key, end in ends.items()}
    anything = Selection(low, high)
    found: dict[str, list[SeriesData]] = {job_id: [] for job_id in job_ids}
    defined = definitions.of_jobs(session, job_ids)
    chunks = headers(session, job_ids, names, from_step=from_step, to_step=to_step, after=after)
    for (job_id, name, _), group in groupby(
        chunks,
        key=lambda chunk: (chunk.job_id, chunk.name, 0 if attempts == "current" else chunk.attempt),
    ):
        pieces = [(chunk, bounds.get((chunk.job_id, chunk.attempt), anything)) for chunk in group]
        if after is not None:
            pieces = [(chunk, wanted._replace(seq=after[name])) for chunk, wanted in pieces]
        pieces = [(chunk, wanted) for chunk, wanted in pieces if chunk.first_step <= wanted.to_step]
        buckets = _buckets(session, pieces, max_points)
        if buckets:
            curve = _curve(
                name,
                metadata_of(name, defined.get(job_id, {}).get(name)),
                pieces[-1][0].attempt,
                buckets.reduced(max_points),
                _non_finite(session, pieces),
            )
            found[job_id].append(curve)
    return found


def visible_until(session: Session, job_ids: Collection[str]) -> dict[tuple[str, int], float]:
    """By job and attempt, the last step before the first one that any later attempt reported."""
    until: dict[tuple[str, int], float] = {}
    for job_id, rows in groupby(
        _rows(session, _FIRST_STEPS, job_ids=list(job_ids)), key=lambda row: str(row[0])
    ):
        limit = math.inf
        for _, attempt, first_step in rows:
            assert first_step is not None  # the statement leaves those out
            until[job_id, attempt] = limit
            limit = min(limit, first_step - 1)
    return until


def headers(
    session: Session,
    job_ids: Collection[str],
    wanted: Collection[str] | None = None,
    *,
    from_step: int | None = None,
    to_step: int | None = None,
    after: Mapping[str, int] | None = None,
) -> Iterable[Header]:
    """Return the headers of chunks by job, name, attempt, and the order of their points."""
    statement: Select[*tuple[Any, ...]] = _HEADERS
    values: dict[str, Any] = {"job_ids": list(job_ids)}
    if wanted is not None:
        statement, values["names"] = statement.where(_NAMED), list(wanted)
    if from_step is not None:
        statement, values["from_step"] = statement.where(_FROM), from_step
    if to_step is not None:
        statement, values["to_step"] = statement.where(_TO), to_step
    if after is None:
        return map(Header._make, _rows(session, statement, **values))
    found: list[Header] = []
    counts = list(after.items())
    for start in range(0, len(counts), NAMES_PER_STATEMENT):
        some = counts[start : start + NAMES_PER_STATEMENT]
        # No chunk that begins so far before a point can hold it.
        later = or_(*((_TABLE.name == name) & (_TABLE.seq > count - CHUNK) for name, count in some))
        found += map(Header._make, _rows(session, statement.where(later), **values))
    return [chunk for chunk in found if chunk.seq + chunk.point_count > after[chunk.name]]


def _rows(
    session: Session, statement: Select[*tuple[Any, ...]], **values: Any
) -> Sequence[Row[*tuple[Any, ...]]]:
    """Run on the connection: the session's work per row takes as long as the fetch."""
    return session.connection().execute(statement, values).all()


def _buckets(session: Session, pieces: Sequence[_Piece], max_points: int) -> Buckets:
    """Return the selection of some chunks, at least as fine as ``max_points`` buckets need."""
    size = math.ceil(sum(chunk.point_count for chunk, _ in pieces) / max_points)

    def how(piece: _Piece) -> tuple[int, Callable[[Session, _Run], Buckets]]:
        chunk, wanted = piece
        if size < SUMMARY_POINTS or not wanted.hold(chunk):
            return chunk.attempt, _opened
        return chunk.attempt, _from_headers if size >= CHUNK else _from_summaries

    found = Buckets()
    for (_, of), run in groupby(pieces, key=how):
        found.extend(of(session, list(run)))
    return found


def _from_headers(_session: Session, run: _Run) -> Buckets:
    return Buckets(
        size=[chunk.point_count for chunk, _ in run],
        step=[chunk.end_step for chunk, _ in run],
        time=[chunk.end_time for chunk, _ in run],
        value=[_number(None if chunk.nan_count else chunk.end_value) for chunk, _ in run],
        min=[_number(chunk.min) for chunk, _ in run],
        max=[_number(chunk.max) for chunk, _ in run],
    )


def _from_summaries(session: Session, run: _Run) -> Buckets:
    """From summaries.

    Where there is none, because the chunk is not full or is the version before's, from the points.
    """
    rows = {row[0]: row for row in _consecutive(session, _SUMMARIES, run)}
    found = Buckets()
    wanted = (rows[chunk.seq] for chunk, _ in run)
    for is_there, some in groupby(wanted, key=lambda row: row[1] is not None):
        if is_there:
            found.extend(unpack_summaries(row[1] for row in some))
        else:
            for row in some:
                found.add_points(unpack(row[2]))
    return found


def _opened(session: Session, run: _Run) -> Buckets:
    packed = {row[0]: row[1] for row in _consecutive(session, _POINTS, run)}
    found = Buckets()
    for chunk, wanted in run:
        points = unpack(packed[chunk.seq])
        found.add_points(points if wanted.hold(chunk) else wanted.of(chunk, points))
    return found


def points_of(session: Session, chunk: Header, wanted: Selection) -> Points:
    """Return the selected points of one chunk."""
    ((_, packed),) = _consecutive(session, _POINTS, [(chunk, wanted)])
    return wanted.of(chunk, unpack(packed))


def _consecutive(
    session: Session, statement: Select[*tuple[Any, ...]], run: _Run
) -> Sequence[Row[*tuple[Any, ...]]]:
    """Aggregate of the chunks from a run's first to its last."""
    first, last = run[0][0], run[-1][0]
    whose = {"job_id": first.job_id, "name": first.name, "attempt": first.attempt}
    return _rows(session, statement, **whose, first=first.seq, last=last.seq)


def _non_finite(session: Session, pieces: Sequence[_Piece]) -> int:
    """Count wanted points with NaN or infinite values, from headers if possible."""
    count = 0
    for chunk, wanted in pieces:
        if chunk.non_finite_count == 0 or wanted.hold(chunk):
            count += chunk.non_finite_count
        else:
            values = points_of(session, chunk, wanted).values
            count += len(values) - sum(map(math.isfinite, values))
    return count


def _curve(
    name: str, metadata: Metadata, attempt: int, few: Buckets, non_finite: int
) -> SeriesData:
    return SeriesData(
        name=name,
        unit=metadata.unit,
        kind=metadata.kind,
        direction=metadata.direction,
        attempt=attempt,
        count=sum(few.size),
        non_finite=non_finite,
        step=few.step,
        time=few.time,
        value=few.value,
        min=few.min,
        max=few.max,
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else value
