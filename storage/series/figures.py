"""Figures of each series of a job: last value, extremes, best value, numbers of points.

They describe the job's current curve, without the steps that a later attempt repeated. Headers of
chunks have most of them. Points are read of chunks that a later attempt hides in part, of those
whose extreme is infinite, and of the one that has the best value.

Not here: curves (``storage.series.series_query``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Final, NamedTuple

from sqlalchemy import Row, bindparam, select
from sqlalchemy.orm import Session

from lockstep.domain.training.series import DescribedSeries, described, described_together
from lockstep.storage.db.dialects import run, table_of
from lockstep.storage.db.series_tables import SeriesChunkRow, SeriesLatestRow
from lockstep.storage.series import definitions
from lockstep.storage.series.packing import unpack
from lockstep.storage.series.points import Points
from lockstep.storage.series.series_query import (
    Header,
    Selection,
    headers,
    points_of,
    visible_until,
)

INFINITE_CHUNKS_MAX: Final = 200
"""Chunks with infinite extremes that are read of one series. Beyond it the finite extreme is not
known: a series of infinities would otherwise cost a minute."""
CHUNKS_AT_ONCE: Final = 200
"""In one statement: 2 MB."""
_CHUNKS: Final = table_of(SeriesChunkRow)
_BY_ID: Final = select(_CHUNKS.c.id, _CHUNKS.c.points).where(
    _CHUNKS.c.id.in_(bindparam("ids", expanding=True))
)
_LATEST: Final = table_of(SeriesLatestRow)
_NEWEST: Final = select(_LATEST).where(_LATEST.c.job_id.in_(bindparam("of_jobs", expanding=True)))


class Last(NamedTuple):
    """The last point of a curve."""

    attempt: int
    step: int
    time: float
    value: float


@dataclass(frozen=True)
class SeriesFigures:
    """Figures of one series; extremes are of its finite values."""

    series: DescribedSeries
    last: Last
    count: int
    non_finite: int
    min: float | None
    max: float | None
    best: float | None
    best_step: int | None


class Together(NamedTuple):
    """Series of several jobs."""

    series: list[DescribedSeries]
    """All of them, each once."""
    figures: dict[str, list[SeriesFigures]]
    """By job, of the wanted series."""


def read(session: Session, job_id: str) -> list[SeriesFigures]:
    """Return the figures of all series of a job, in the order of ``domain.training.series``.

    Parameters
    ----------
    session : Session
        A read transaction with one snapshot.
    job_id : str
    """
    return read_jobs(session, [job_id]).figures[job_id]


def read_jobs(
    session: Session, job_ids: Sequence[str], wanted: Collection[str] | None = None
) -> Together:
    """Return the series of several jobs, and the figures of the wanted ones.

    The number of statements does not depend on the number of jobs.

    Parameters
    ----------
    session : Session
        A read transaction with one snapshot.
    job_ids : sequence of str
    wanted : collection of str, optional
        Names of series; all if not given.
    """
    latest: dict[str, dict[str, Row[tuple[object, ...]]]] = {job_id: {} for job_id in job_ids}
    for row in run(session, _NEWEST, {"of_jobs": list(job_ids)}):
        latest[row.job_id][row.name] = row
    defined = definitions.of_jobs(session, job_ids)
    ends = visible_until(session, job_ids)
    bounds: dict[str, dict[int, Selection]] = {job_id: {} for job_id in job_ids}
    for (job_id, attempt), end in ends.items():
        bounds[job_id][attempt] = Selection(-math.inf, end)
    curves = {
        key: _Curve(session, chunks, bounds[key[0]])
        for key, chunks in groupby(
            headers(session, job_ids, wanted), key=lambda chunk: (chunk.job_id, chunk.name)
        )
    }
    shown = [
        (job_id, each)
        for job_id in job_ids
        for each in described(latest[job_id], defined.get(job_id, {}))
        if wanted is None or each.name in wanted
    ]
    _read_best(
        session,
        [
            (curves[job_id, each.name], each)
            for job_id, each in shown
            if (job_id, each.name) in curves
        ],
    )
    found: dict[str, list[SeriesFigures]] = {job_id: [] for job_id in job_ids}
    for job_id, each in shown:
        newest = latest[job_id][each.name]
        curve = curves.get((job_id, each.name)) or _Curve(session, (), bounds[job_id])
        last = _last(newest, ends.get((job_id, newest.attempt)), curve)
        if last is not None:
            found[job_id].append(curve.figures(each, last))
    together = described_together((latest[job_id], defined.get(job_id, {})) for job_id in job_ids)
    return Together(together, found)


def _read_best(session: Session, curves: Iterable[tuple[_Curve, DescribedSeries]]) -> None:
    """Read the chunks with the best values of all series at once, as far as they are whole.

    A job may have a thousand series, and a statement for each takes longer than all the rest.
    """
    wanted: dict[int, tuple[_Curve, int]] = {}
    for curve, series in curves:
        best = curve.best(series)
        if best is not None and best.step is None:
            wanted[curve.chunk_id(best.chunk)] = curve, best.chunk
    ids = list(wanted)
    for start in range(0, len(ids), CHUNKS_AT_ONCE):
        for row in run(session, _BY_ID, {"ids": ids[start : start + CHUNKS_AT_ONCE]}):
            curve, index = wanted[row.id]
            curve.keep(index, unpack(row.points))


def _last(newest: Row[tuple[object, ...]], end: float | None, curve: _Curve) -> Last | None:
    """Return the newest point, unless a later attempt repeats its step; then the last one kept."""
    if end is None or newest.step <= end:
        return Last(newest.attempt, newest.step, newest.time, _number(newest.value))
    return curve.last()


class _Extreme(NamedTuple):
    """A finite extreme of a piece of a curve."""

    value: float
    chunk: int
    """Index of its chunk."""
    step: int | None
    """None if the points were not read."""


class _Curve:
    """Current curve of one series."""

    def __init__(
        self, session: Session, chunks: Iterable[Header], bounds: dict[int, Selection]
    ) -> None:
        everything = Selection(-math.inf, math.inf)
        self._session = session
        self._pieces = [
            (chunk, wanted)
            for chunk in chunks
            if chunk.first_step <= (wanted := bounds.get(chunk.attempt, everything)).to_step
        ]
        self._read: dict[int, Points] = {}
        self._infinite_left = INFINITE_CHUNKS_MAX

    def figures(self, series: DescribedSeries, last: Last) -> SeriesFigures:
        count = non_finite = 0
        for index, (chunk, wanted) in enumerate(self._pieces):
            if wanted.hold(chunk):
                count += chunk.point_count
                non_finite += chunk.non_finite_count
            else:
                values = self._points(index).values
                count += len(values)
                non_finite += len(values) - sum(map(math.isfinite, values))
        low, high, best = self._low, self._high, self.best(series)
        return SeriesFigures(
            series,
            last,
            count,
            non_finite,
            None if low is None else low.value,
            None if high is None else high.value,
            None if best is None else best.value,
            None if best is None else self._step_of(best),
        )

    @cached_property
    def _low(self) -> _Extreme | None:
        return self._extreme(-1)

    @cached_property
    def _high(self) -> _Extreme | None:
        return self._extreme(1)

    def best(self, series: DescribedSeries) -> _Extreme | None:
        """Return the best value by the direction; None without one."""
        direction = series.metadata.direction
        if direction == "none":
            return None
        return self._low if direction == "lower" else self._high

    def chunk_id(self, index: int) -> int:
        return self._pieces[index][0].id

    def keep(self, index: int, points: Points) -> None:
        """Note the points of a whole chunk."""
        self._read[index] = points

    def last(self) -> Last | None:
        for index in reversed(range(len(self._pieces))):
            chunk, wanted = self._pieces[index]
            if wanted.hold(chunk):
                value = _number(chunk.end_value)
                return Last(chunk.attempt, chunk.end_step, chunk.end_time, value)
            if points := self._points(index):
                return Last(chunk.attempt, points.steps[-1], points.times[-1], points.values[-1])
        return None

    def _extreme(self, sign: int) -> _Extreme | None:
        """Return the first smallest value with sign -1, the first largest one with 1.

        None without a finite value, and beyond the limit of chunks with infinite extremes.
        """
        found: _Extreme | None = None
        for index, (chunk, wanted) in enumerate(self._pieces):
            extreme = chunk.min if sign < 0 else chunk.max
            if not wanted.hold(chunk):
                piece = _of_points(self._points(index), index, sign)
            elif extreme is not None and math.isfinite(extreme):
                piece = _Extreme(extreme, index, None)
            elif chunk.point_count == chunk.non_finite_count:
                piece = None
            elif self._infinite_left == 0 and index not in self._read:
                return None
            else:
                self._infinite_left -= index not in self._read
                piece = _of_points(self._points(index), index, sign)
            if piece is not None and (found is None or sign * piece.value > sign * found.value):
                found = piece
        return found

    def _step_of(self, extreme: _Extreme) -> int:
        if extreme.step is not None:
            return extreme.step
        points = self._points(extreme.chunk)
        return points.steps[points.values.index(extreme.value)]

    def _points(self, index: int) -> Points:
        if index not in self._read:
            self._read[index] = points_of(self._session, *self._pieces[index])
        return self._read[index]


def _of_points(points: Points, index: int, sign: int) -> _Extreme | None:
    finite: Sequence[tuple[int, float]] = [
        (step, value)
        for step, value in zip(points.steps, points.values, strict=True)
        if math.isfinite(value)
    ]
    if not finite:
        return None
    step, value = max(finite, key=lambda point: sign * point[1])
    return _Extreme(value, index, step)


def _number(value: float | None) -> float:
    return math.nan if value is None else value
