"""Metric series: appended in batches, kept in packed chunks.

And the newest value and the progress of each job.

A batch becomes one small chunk per series. Small chunks are merged as they come, each with the ones
before it that are not larger, up to 512 points: so a point is rewritten at most nine times, a
series has at most a handful of small chunks, and no background work is needed before a long series
reads quickly. Chunks are compressed from 128 points on. A full one is never written again, and has
a summary beside it.

Not here: reading them back (``storage.series.series_query``), the fence and the offsets
(``storage.series.streams``), a chunk's bytes (``storage.series.packing``).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    Row,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.orm import Session

from lockstep.domain import limits
from lockstep.domain.training.definitions import SeriesDefinition
from lockstep.domain.training.metrics import StepValues, jsonable
from lockstep.storage.db.dialects import apart, for_each, greatest, least, run, table_of, write
from lockstep.storage.db.series_tables import (
    ProgressRow,
    SeriesChunkRow,
    SeriesLatestRow,
    StreamRow,
    of_kind,
)
from lockstep.storage.series import definitions, streams
from lockstep.storage.series.packing import pack, pack_summary, unpack
from lockstep.storage.series.points import Points

NO_DEFINITIONS: Final[Mapping[str, SeriesDefinition]] = MappingProxyType({})
CHUNK: Final = limits.METRIC_POINTS_PER_CHUNK
COMPRESSED_FROM: Final = 128
"""Points of a chunk. Smaller ones are written again soon, so that the time would be lost on them,
and hold little."""
ROWS_PER_STATEMENT: Final = 500
"""SQLite and PostgreSQL limit the parameters of one statement."""


class OverLimit(NamedTuple):
    """Data of one append beyond the limits of a job."""

    points: int = 0
    names: tuple[str, ...] = ()
    """Of series beyond the limit of names per job, none of whose points are kept."""
    names_max: int = limits.METRIC_NAMES_PER_JOB_MAX
    """The limit that was exceeded."""
    definitions: tuple[str, ...] = ()
    """Names beyond the limit of definitions per job, which is that of names."""
    job_is_full: bool = False
    """The job has as many points as one may have: of all series only the newest value is kept up to
    date."""


def append(
    session: Session,
    *,
    assignment_id: str,
    token: str,
    offset_before: int,
    offset_after: int,
    records: Sequence[StepValues],
    source: str | None = None,
    defined: Mapping[str, SeriesDefinition] = NO_DEFINITIONS,
    left_out: Callable[[OverLimit], object] = lambda _: None,
) -> bool:
    """Store a piece of an assignment's metrics spool.

    Offset, points, newest values and progress together.

    Parameters
    ----------
    session : Session
    assignment_id, token : str
    offset_before, offset_after : int
        Offsets in the spool before and after the piece. It is stored only if it begins at the
        stored offset.
    records : sequence of Record
        Records of the piece, without empty lines.
    source : str, optional
        Another source than the spool, whose offset moves instead. Records of
        ``streams.SYSTEM_SOURCE`` are no progress, hide no points of an earlier attempt, and do not
        count against the job's limit of series.
    defined : mapping of str to SeriesDefinition
        Definitions in the piece, by series.
    left_out : callable
        Called with the points that exceeded a limit; the transaction may still fail.

    Returns
    -------
    bool
        False, and nothing stored, if the token is stale, the stream is sealed, or the piece was
        stored before.
    """
    if source is None:
        before, after = {"metrics_offset": offset_before}, {"metrics_offset": offset_after}
        stream = streams.advance(session, assignment_id, token, before, after)
    else:
        stream = streams.advance_source(
            session, assignment_id, token, source, before=offset_before, after=offset_after
        )
    if stream is None:
        return False
    bump(session, stream.job_id)
    if refused := definitions.store(session, stream.job_id, defined):
        left_out(OverLimit(definitions=refused))
    if records:
        system = source == streams.SYSTEM_SOURCE
        without_room = _store(session, stream, _by_name(records), system=system)
        if without_room.points:
            left_out(without_room)
        values: dict[str, Any] = {"of_assignment": assignment_id, "dropped": without_room.points}
        if not system:
            first = min(record.step for record in records)
            values["first_step"] = (
                first if stream.first_step is None else min(first, stream.first_step)
            )
            _note_progress(session, stream, records)
        if source is None:
            # A line without a step is counted on from it, and only lines of the spool may lack one.
            values["last_step"] = records[-1].step
        run(session, _REACHED, values)
    return True


_STREAM: Final = table_of(StreamRow)
_REACHED: Final = (
    update(_STREAM)
    .where(_STREAM.c.assignment_id == bindparam("of_assignment"))
    .values(points_dropped=_STREAM.c.points_dropped + bindparam("dropped", type_=BigInteger))
)


def bump(session: Session, job_id: str) -> None:
    """Count one more stored batch of a job, so that its ETag changes."""
    run(session, _BUMPED, {"job_id": job_id})


_BUMPED: Final = for_each(
    ProgressRow,
    lambda insert: insert.values(seq=1, attempt=0, step=0).on_conflict_do_update(
        index_elements=["job_id"], set_={"seq": table_of(ProgressRow).c.seq + 1}
    ),
)


def _by_name(records: Iterable[StepValues]) -> dict[str, Points]:
    series: dict[str, Points] = defaultdict(Points)
    for step, time, values, _ in records:
        for name, value in values.items():
            series[name].add(step, time, value)
    return series


def _store(
    session: Session, stream: streams.Advanced, series: dict[str, Points], *, system: bool
) -> OverLimit:
    """Write chunks and newest values, as far as there is room."""
    job_id = stream.job_id
    counts: dict[str, int] = {
        row.name: row.point_count for row in run(session, _COUNTS[system], {"of_job": job_id})
    }
    names_max = limits.SYSTEM_NAMES_PER_JOB_MAX if system else limits.METRIC_NAMES_PER_JOB_MAX
    refused = [name for name in series if name not in counts][max(0, names_max - len(counts)) :]
    dropped = sum(len(series.pop(name)) for name in refused)
    full = sum(counts.values()) >= limits.METRIC_POINTS_PER_JOB_MAX
    if full:
        dropped += sum(map(len, series.values()))
    left_out = OverLimit(dropped, tuple(refused), names_max, job_is_full=full)
    if not series:
        return left_out
    if not full:
        _write_chunks(session, stream, series, counts, system=system)
    rows = [
        _latest_row(stream, name, points, counts.get(name, 0) + (0 if full else len(points)))
        for name, points in series.items()
    ]
    run(session, _NEWEST, rows)
    return left_out


def _latest_row(
    stream: streams.Advanced, name: str, points: Points, point_count: int
) -> dict[str, Any]:
    finite = list(filter(math.isfinite, points.values))
    return {
        "job_id": stream.job_id,
        "name": name,
        "attempt": stream.attempt,
        "step": points.steps[-1],
        "time": points.times[-1],
        "value": _nullable(points.values[-1]),
        "min": min(finite, default=None),
        "max": max(finite, default=None),
        "point_count": point_count,
    }


_LATEST: Final = table_of(SeriesLatestRow)
_COUNTS: Final = {
    system: select(_LATEST.c.name, _LATEST.c.point_count).where(
        _LATEST.c.job_id == bindparam("of_job"), of_kind(_LATEST.c.name, system=system)
    )
    for system in (False, True)
}
_NEWEST: Final = for_each(
    SeriesLatestRow,
    lambda insert: insert.on_conflict_do_update(
        index_elements=["job_id", "name"],
        set_={
            field: insert.excluded[field]
            for field in ("attempt", "step", "time", "value", "point_count")
        }
        | {
            name: choose(
                func.coalesce(_LATEST.c[name], insert.excluded[name]),
                func.coalesce(insert.excluded[name], _LATEST.c[name]),
            )
            for name, choose in (("min", least), ("max", greatest))
        },
    ),
)


def _write_chunks(
    session: Session,
    stream: streams.Advanced,
    series: dict[str, Points],
    counts: dict[str, int],
    *,
    system: bool,
) -> None:
    """Write new points, merged with the small chunks before them (see the module's docstring)."""
    before: dict[str, list[Row[Any]]] = {}
    for chunk in run(
        session, _SMALL[system], {"of_job": stream.job_id, "of_attempt": stream.attempt}
    ):
        before.setdefault(chunk.name, []).append(chunk)
    replaced: list[int] = []
    rows: list[dict[str, Any]] = []
    for name, new in series.items():
        seq, points = counts.get(name, 0), new
        earlier = before.get(name, [])
        while earlier and earlier[-1].point_count <= len(points):
            chunk = earlier.pop()
            replaced.append(chunk.id)
            seq, joined = chunk.seq, unpack(chunk.points)
            joined.extend(points)
            points = joined
        rows += [
            chunk_row(
                stream.job_id, stream.attempt, name, seq + start, points.part(start, start + CHUNK)
            )
            for start in range(0, len(points), CHUNK)
        ]
    for start in range(0, len(replaced), ROWS_PER_STATEMENT):
        ids = replaced[start : start + ROWS_PER_STATEMENT]
        write(session, delete(SeriesChunkRow).where(SeriesChunkRow.id.in_(ids)))
    run(session, _ADDED, rows)


_CHUNK: Final = table_of(SeriesChunkRow)
_SMALL: Final = {
    system: select(_CHUNK.c.id, _CHUNK.c.name, _CHUNK.c.seq, _CHUNK.c.point_count, _CHUNK.c.points)
    .where(
        _CHUNK.c.job_id == bindparam("of_job"),
        _CHUNK.c.attempt == bindparam("of_attempt"),
        # Chunks outside the batch's range are not opened.
        of_kind(_CHUNK.c.name, system=system),
        # The literal, not a parameter: only so do the planners use the partial index.
        _CHUNK.c.point_count < literal_column(str(CHUNK)),
    )
    .order_by(_CHUNK.c.name, _CHUNK.c.seq)
    for system in (False, True)
}
_ADDED: Final = insert(_CHUNK)


def chunk_row(job_id: str, attempt: int, name: str, seq: int, points: Points) -> dict[str, Any]:
    """Return the columns of a chunk with these points (at least one)."""
    bucket = points.bucket()
    full = bucket.size == CHUNK
    return {
        "job_id": job_id,
        "name": name,
        "attempt": attempt,
        "seq": seq,
        "first_step": min(points.steps),
        "last_step": max(points.steps),
        "point_count": bucket.size,
        "min": _nullable(bucket.min),
        "max": _nullable(bucket.max),
        "nan_count": sum(map(math.isnan, points.values)),
        "non_finite_count": bucket.size - sum(map(math.isfinite, points.values)),
        "end_step": bucket.step,
        "end_time": bucket.time,
        "end_value": _nullable(points.values[-1]),
        "points": pack(points, compress=bucket.size >= COMPRESSED_FROM),
        "summary": pack_summary(points) if full else None,
    }


def _note_progress(
    session: Session, stream: streams.Advanced, records: Sequence[StepValues]
) -> None:
    progress = run(session, _PROGRESS, {"of_job": stream.job_id}).one()
    furthest = max(records, key=lambda record: record.step)
    values: dict[str, Any] = {}
    if progress.attempt != stream.attempt:
        first = records[0]
        values = {"attempt": stream.attempt, "first_step": first.step, "first_time": first.time}
    if values or furthest.step > progress.step:
        values |= {"step": furthest.step, "time": furthest.time}
    if values:
        run(session, _PROGRESSED, {"of_job": stream.job_id, **values})


_FURTHEST: Final = table_of(ProgressRow)
_PROGRESS: Final = select(_FURTHEST.c.attempt, _FURTHEST.c.step).where(
    _FURTHEST.c.job_id == bindparam("of_job")
)
_PROGRESSED: Final = update(_FURTHEST).where(_FURTHEST.c.job_id == bindparam("of_job"))


_VALUES: Final = (
    select(_LATEST.c.job_id, _LATEST.c.name, _LATEST.c.value)
    .where(_LATEST.c.job_id.in_(bindparam("job_ids", expanding=True)))
    .where(of_kind(_LATEST.c.name, system=False))
    .order_by(_LATEST.c.name)
)
_PROGRESSES: Final = select(_FURTHEST).where(
    _FURTHEST.c.job_id.in_(bindparam("job_ids", expanding=True))
)


def latest(session: Session, job_ids: Iterable[str]) -> dict[str, dict[str, float | str]]:
    """The newest value of each of the jobs' own series, as JSON carries it.

    A list of jobs has no room for ``system/``.
    """
    found: dict[str, dict[str, float | str]] = {}
    for job_id, name, value in run(session, _VALUES, {"job_ids": list(job_ids)}):
        found.setdefault(job_id, {})[name] = jsonable(math.nan if value is None else value)
    return found


def progress(session: Session, job_ids: Iterable[str]) -> dict[str, ProgressRow]:
    """Return the progress of each job that has reported any."""
    rows = run(session, _PROGRESSES, {"job_ids": list(job_ids)})
    return {row.job_id: apart(ProgressRow, row._asdict()) for row in rows}


def last_step(session: Session, job_id: str, *, before: int | None = None) -> int | None:
    """Return the largest step with a stored point, of the attempts before one; None without."""
    statement = select(func.max(SeriesChunkRow.last_step)).where(SeriesChunkRow.job_id == job_id)
    if before is not None:
        statement = statement.where(SeriesChunkRow.attempt < before)
    return session.scalars(statement).one()


def _nullable(value: float) -> float | None:
    return None if math.isnan(value) else value
