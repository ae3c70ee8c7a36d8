"""Metric series: appended in batches, kept in packed chunks, read back whole or in buckets.

A batch becomes one small chunk per series. Small chunks are merged as they come, each with the ones before it that are
not larger, up to 512 points: so a point is rewritten at most nine times, a series has at most a handful of small chunks,
and no background work is needed before a long series reads quickly.

Not here: the fence and the offsets (``storage.streams``), packing and buckets (``storage.points``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Literal

from sqlalchemy import Row, delete, func, insert, literal_column, select, update
from sqlalchemy.orm import Session, undefer

from domain import limits
from domain.metrics import Record, jsonable, unit_of
from domain.views import SeriesView
from storage import streams
from storage.dialects import upsert, write
from storage.points import Bucket, Points, buckets_of, merged
from storage.series_tables import ProgressRow, SeriesChunkRow, SeriesLatestRow, StreamRow, of_kind

CHUNK: Final = limits.METRIC_POINTS_PER_CHUNK
ROWS_PER_STATEMENT: Final = 500
"""SQLite and PostgreSQL limit the parameters of one statement."""


def append(
    session: Session,
    *,
    assignment_id: str,
    token: str,
    offset_before: int,
    offset_after: int,
    records: Sequence[Record],
    source: str | None = None,
) -> bool:
    """Store a piece of an assignment's metrics spool: offset, points, newest values and progress together.

    Parameters
    ----------
    session : Session
    assignment_id, token : str
    offset_before, offset_after : int
        Bytes of the spool that the piece begins and ends at. It is stored only where the last one ended.
    records : sequence of Record
        What the piece says; lines that say nothing are left out.
    source : str, optional
        Of another source than the spool, whose place moves instead. Records of ``streams.SYSTEM_SOURCE`` are no progress,
        hide nothing of an earlier attempt, and their names take no room of the job's.

    Returns
    -------
    bool
        False, and nothing stored, when the token is stale, the stream is sealed, or the piece was stored before.
    """
    if source is None:
        before, after = {"metrics_offset": offset_before}, {"metrics_offset": offset_after}
        stream = streams.advance(session, assignment_id, token, before, after)
    else:
        stream = streams.advance_source(session, assignment_id, token, source, before=offset_before, after=offset_after)
    if stream is None:
        return False
    bump(session, stream.job_id)
    if records:
        system = source == streams.SYSTEM_SOURCE
        dropped = _store(session, stream, _by_name(records), system=system)
        values: dict[str, Any] = {"points_dropped": StreamRow.points_dropped + dropped}
        if not system:
            first = min(record.step for record in records)
            values["first_step"] = first if stream.first_step is None else min(first, stream.first_step)
            _note_progress(session, stream, records)
        if source is None:
            # A line without a step is counted on from it, and only lines of the spool may lack one.
            values["last_step"] = records[-1].step
        write(session, update(StreamRow).where(StreamRow.assignment_id == assignment_id).values(values))
    return True


def bump(session: Session, job_id: str) -> None:
    """Count one more stored batch of a job, so that its ETag changes."""
    row = upsert(session, ProgressRow).values(job_id=job_id, seq=1, attempt=0, step=0)
    write(session, row.on_conflict_do_update(index_elements=["job_id"], set_={"seq": ProgressRow.seq + 1}))


def _by_name(records: Iterable[Record]) -> dict[str, Points]:
    series: dict[str, Points] = {}
    for record in records:
        for name, value in record.values.items():
            series.setdefault(name, Points()).add(record.step, record.time, value)
    return series


def _store(session: Session, stream: streams.Advanced, series: dict[str, Points], *, system: bool) -> int:
    """Write chunks and newest values; returns how many points were dropped for having one name too many."""
    job_id = stream.job_id
    mine = SeriesLatestRow.job_id == job_id, of_kind(SeriesLatestRow.name, system=system)
    statement = select(SeriesLatestRow.name, SeriesLatestRow.point_count).where(*mine)
    counts: dict[str, int] = {row[0]: row[1] for row in session.execute(statement)}
    room = (limits.SYSTEM_NAMES_PER_JOB_MAX if system else limits.METRIC_NAMES_PER_JOB_MAX) - len(counts)
    refused = [name for name in series if name not in counts][max(0, room) :]
    dropped = sum(len(series.pop(name)) for name in refused)
    if not series:
        return dropped
    _write_chunks(session, stream, series, counts, system=system)
    latest = upsert(session, SeriesLatestRow)
    fields = ("attempt", "step", "time", "value", "point_count")
    newest = latest.on_conflict_do_update(
        index_elements=["job_id", "name"], set_={field: latest.excluded[field] for field in fields}
    )
    rows = [
        {
            "job_id": job_id,
            "name": name,
            "attempt": stream.attempt,
            "step": points.steps[-1],
            "time": points.times[-1],
            "value": _nullable(points.values[-1]),
            "point_count": counts.get(name, 0) + len(points),
        }
        for name, points in series.items()
    ]
    session.execute(newest, rows)
    return dropped


def _write_chunks(
    session: Session, stream: streams.Advanced, series: dict[str, Points], counts: dict[str, int], *, system: bool
) -> None:
    """Write new points, merged with the small chunks before them (see the module's docstring)."""
    small = (
        select(SeriesChunkRow)
        .where(
            SeriesChunkRow.job_id == stream.job_id,
            SeriesChunkRow.attempt == stream.attempt,
            # What a batch cannot concern is not opened for it.
            of_kind(SeriesChunkRow.name, system=system),
            # The literal, not a parameter: only so do the planners use the partial index.
            SeriesChunkRow.point_count < literal_column(str(CHUNK)),
        )
        .options(undefer(SeriesChunkRow.points))
        .order_by(SeriesChunkRow.name, SeriesChunkRow.seq)
    )
    before: dict[str, list[SeriesChunkRow]] = {}
    for chunk in session.scalars(small):
        before.setdefault(chunk.name, []).append(chunk)
    replaced: list[int] = []
    rows: list[dict[str, Any]] = []
    for name, new in series.items():
        seq, points = counts.get(name, 0), new
        earlier = before.get(name, [])
        while earlier and earlier[-1].point_count <= len(points):
            chunk = earlier.pop()
            replaced.append(chunk.id)
            seq, joined = chunk.seq, Points.unpack(chunk.points)
            joined.extend(points)
            points = joined
        rows += [
            _chunk_row(stream, name, seq + start, points.part(start, start + CHUNK))
            for start in range(0, len(points), CHUNK)
        ]
    for start in range(0, len(replaced), ROWS_PER_STATEMENT):
        ids = replaced[start : start + ROWS_PER_STATEMENT]
        write(session, delete(SeriesChunkRow).where(SeriesChunkRow.id.in_(ids)))
    session.execute(insert(SeriesChunkRow), rows)


def _chunk_row(stream: streams.Advanced, name: str, seq: int, points: Points) -> dict[str, Any]:
    bucket = points.bucket()
    return {
        "job_id": stream.job_id,
        "name": name,
        "attempt": stream.attempt,
        "seq": seq,
        "first_step": min(points.steps),
        "last_step": max(points.steps),
        "point_count": bucket.count,
        "min": _nullable(bucket.min),
        "max": _nullable(bucket.max),
        "nan_count": bucket.nan_count,
        "non_finite_count": sum(not math.isfinite(value) for value in points.values),
        "end_step": bucket.end_step,
        "end_time": bucket.end_time,
        "end_value": _nullable(bucket.end_value),
        "points": points.pack(),
    }


def _note_progress(session: Session, stream: streams.Advanced, records: Sequence[Record]) -> None:
    progress = session.get_one(ProgressRow, stream.job_id, populate_existing=True)
    furthest = max(records, key=lambda record: record.step)
    if progress.attempt != stream.attempt:
        progress.attempt, progress.step = stream.attempt, -1
        progress.first_step, progress.first_time = records[0].step, records[0].time
    if furthest.step > progress.step:
        progress.step, progress.time = furthest.step, furthest.time
    session.flush()


# --- reading ----------------------------------------------------------------------------------------------------------


def latest(session: Session, job_ids: Iterable[str]) -> dict[str, dict[str, float | str]]:
    """The newest value of each of the jobs' own series, as JSON carries it: a list of jobs has no room for ``system/``."""
    found: dict[str, dict[str, float | str]] = {}
    own = SeriesLatestRow.job_id.in_(list(job_ids)), of_kind(SeriesLatestRow.name, system=False)
    for row in session.scalars(select(SeriesLatestRow).where(*own).order_by(SeriesLatestRow.name)):
        found.setdefault(row.job_id, {})[row.name] = jsonable(_number(row.value))
    return found


def progress(session: Session, job_ids: Iterable[str]) -> dict[str, ProgressRow]:
    """How far each job is that has shipped anything."""
    statement = select(ProgressRow).where(ProgressRow.job_id.in_(list(job_ids)))
    return {row.job_id: row for row in session.scalars(statement.execution_options(populate_existing=True))}


@dataclass(frozen=True)
class _Piece:
    """A chunk's header, and which of its points are wanted."""

    header: Row[Any]
    from_step: float
    to_step: float

    @property
    def whole(self) -> bool:
        return bool(self.from_step <= self.header.first_step and self.header.last_step <= self.to_step)


def read(
    session: Session,
    job_id: str,
    *,
    names: Sequence[str] | None = None,
    from_step: int | None = None,
    to_step: int | None = None,
    max_points: int = limits.SERIES_POINTS_MAX,
    attempts: Literal["current", "all"] = "current",
) -> list[SeriesView]:
    """Series of a job: every point, or at most ``max_points`` buckets of points per series.

    A bucket's ``min`` and ``max`` are its extremes among the values that are numbers (infinities are, so they show
    there); its ``value`` is the last one, or ``"NaN"`` if any value in the bucket is NaN. So no spike and no NaN can
    vanish from a chart, however few points are asked for.

    Parameters
    ----------
    session : Session
    job_id : str
    names : sequence of str, optional
        All series if not given.
    from_step, to_step : int, optional
        Bounds, both included.
    max_points : int
        At least 1.
    attempts : {"current", "all"}
        ``current`` reads one curve per series: of an earlier attempt only the steps before the first one that a later
        attempt reported, because the later one trained the rest again. ``all`` reads each attempt for itself.
    """
    low = -math.inf if from_step is None else from_step
    high = math.inf if to_step is None else to_step
    ends = _visible_until(session, job_id) if attempts == "current" else {}
    pieces = [
        _Piece(header, low, min(high, ends.get(header.attempt, math.inf)))
        for header in _headers(session, job_id, names, from_step, to_step)
    ]
    pieces = [piece for piece in pieces if piece.header.first_step <= piece.to_step]
    views = []
    for _series, group in groupby(
        pieces, key=lambda piece: (piece.header.name, piece.header.attempt if attempts == "all" else 0)
    ):
        view = _view(session, list(group), max_points)
        if view.count:
            views.append(view)
    return views


def _visible_until(session: Session, job_id: str) -> dict[int, float]:
    """For each attempt, the last step before the first one that any later attempt reported."""
    statement = (
        select(StreamRow.attempt, func.min(StreamRow.first_step))
        .where(StreamRow.job_id == job_id, StreamRow.first_step.is_not(None))
        .group_by(StreamRow.attempt)
        .order_by(StreamRow.attempt.desc())
    )
    until: dict[int, float] = {}
    limit = math.inf
    for attempt, first_step in session.execute(statement):
        assert first_step is not None  # the statement leaves those out
        until[attempt] = limit
        limit = min(limit, first_step - 1)
    return until


def _headers(
    session: Session, job_id: str, wanted: Sequence[str] | None, from_step: int | None, to_step: int | None
) -> Sequence[Row[Any]]:
    columns = [column for column in SeriesChunkRow.__table__.columns if column.name != "points"]
    statement = select(*columns).where(SeriesChunkRow.job_id == job_id)
    if wanted is not None:
        statement = statement.where(SeriesChunkRow.name.in_(wanted))
    if from_step is not None:
        statement = statement.where(SeriesChunkRow.last_step >= from_step)
    if to_step is not None:
        statement = statement.where(SeriesChunkRow.first_step <= to_step)
    return session.execute(statement.order_by(SeriesChunkRow.name, SeriesChunkRow.attempt, SeriesChunkRow.seq)).all()


def _view(session: Session, pieces: list[_Piece], max_points: int) -> SeriesView:
    """One series, reduced if it has to be.

    Where a bucket is at least as large as a chunk, whole chunks are never opened: their headers say enough.
    """
    size = math.ceil(sum(piece.header.point_count for piece in pieces) / max_points)
    if size < CHUNK:
        points = Points()
        for part in _opened(session, pieces):
            points.extend(part)
        count = len(points)
        if count <= max_points:
            return _every_point(pieces[-1].header, points)
        buckets = buckets_of(points, math.ceil(count / max_points))
    else:
        edges = [piece for piece in pieces if not piece.whole]
        opened = {
            piece.header.id: part.bucket()
            for piece, part in zip(edges, _opened(session, edges), strict=True)
            if len(part)
        }
        found = (opened.get(piece.header.id) if not piece.whole else _summary(piece.header) for piece in pieces)
        summaries = [bucket for bucket in found if bucket is not None]
        count = sum(bucket.count for bucket in summaries)
        buckets = merged(summaries, math.ceil(count / max_points))
    name = pieces[-1].header.name
    return SeriesView(
        name=name,
        unit=unit_of(name),
        attempt=pieces[-1].header.attempt,
        count=count,
        step=[bucket.end_step for bucket in buckets],
        time=[bucket.end_time for bucket in buckets],
        value=[bucket.value() for bucket in buckets],
        min=[jsonable(bucket.min) for bucket in buckets],
        max=[jsonable(bucket.max) for bucket in buckets],
    )


def _every_point(header: Row[Any], points: Points) -> SeriesView:
    values = [jsonable(value) for value in points.values]
    return SeriesView(
        name=header.name,
        unit=unit_of(header.name),
        attempt=header.attempt,
        count=len(points),
        step=list(points.steps),
        time=list(points.times),
        value=values,
        min=values,
        max=values,
    )


def _opened(session: Session, pieces: Sequence[_Piece]) -> Iterator[Points]:
    """The wanted points of each piece, in their order."""
    for start in range(0, len(pieces), ROWS_PER_STATEMENT):
        some = pieces[start : start + ROWS_PER_STATEMENT]
        statement = select(SeriesChunkRow.id, SeriesChunkRow.points).where(
            SeriesChunkRow.id.in_([piece.header.id for piece in some])
        )
        packed = {row[0]: row[1] for row in session.execute(statement)}
        for piece in some:
            points = Points.unpack(packed[piece.header.id])
            yield points if piece.whole else points.within(piece.from_step, piece.to_step)


def _summary(header: Row[Any]) -> Bucket:
    return Bucket(
        count=header.point_count,
        min=_number(header.min),
        max=_number(header.max),
        nan_count=header.nan_count,
        end_step=header.end_step,
        end_time=header.end_time,
        end_value=_number(header.end_value),
    )


def _nullable(value: float) -> float | None:
    return None if math.isnan(value) else value


def _number(value: float | None) -> float:
    return math.nan if value is None else value
