"""Columns of lists of jobs as SQL, and the values of some columns for the jobs of a page.

Not here: conditions and order (``storage.jobs.listing``), names of columns
(``domain.listing.columns``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Double,
    FromClause,
    and_,
    case,
    cast,
    func,
    literal,
    null,
    select,
    true,
    type_coerce,
)
from sqlalchemy.orm import Session

from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.listing.columns import Column, Kind
from lockstep.domain.rights import Within
from lockstep.domain.training.metrics import jsonable
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.dialects import least, plain, table_of, unindexed
from lockstep.storage.db.listing_tables import JobLabelRow, JobValueRow
from lockstep.storage.db.series_tables import ProgressRow, SeriesLatestRow
from lockstep.storage.db.tables import JobRow

JOBS: Final = table_of(JobRow)
STATES: Final = {state: place for place, state in enumerate(JobState)}
_NAMED: Final = {
    "name": JOBS.c.name,
    "id": JOBS.c.id,
    "kind": JOBS.c.kind,
    "owner": JOBS.c.actor,
    "project": JOBS.c.project,
    "created": JOBS.c.created_at,
    "started": JOBS.c.started_at,
    "finished": JOBS.c.finished_at,
    "gpus": JOBS.c.devices,
    "priority": JOBS.c.priority,
    "attempts": JOBS.c.attempt_count,
}
OF_PROGRESS: Final = frozenset({"step", "progress"})


class Value(NamedTuple):
    """A column as SQL. A setting has both parts, of which one is NULL or both mean the same."""

    number: ColumnElement[float] | None
    text: ColumnElement[str] | None

    @property
    def parts(self) -> list[ColumnElement[Any]]:
        """Keys that order the column: numbers, then texts that are none."""
        if self.number is None or self.text is None:
            return [part for part in (self.number, self.text) if part is not None]
        return [self.number, plain(case((self.number.is_(None), self.text)))]


class Tables:
    """Jobs, joined with the tables of the columns that a statement names."""

    def __init__(self, now: float | None = None) -> None:
        self._now = db_now() if now is None else literal(now, Double())
        self._joined: FromClause = JOBS
        self._aliases: dict[object, FromClause] = {}

    @property
    def joined(self) -> FromClause:
        """Jobs and the tables of all columns that were asked for."""
        return self._joined

    def value(self, column: Column) -> Value:
        """Return a column, and join its table."""
        if column.source == "setting":
            rows = [self._join(table_of(JobValueRow), "key", path) for path in column.paths]
            return Value(_of_first(rows, "number"), plain(_of_first(rows, "text")))
        if column.source == "label":
            row = self._join(table_of(JobLabelRow), "key", column.name)
            return Value(None, plain(row.c.value))
        if column.source == "metric":
            row = self._join(table_of(SeriesLatestRow), "name", column.name)
            return Value(row.c["value" if column.part == "last" else column.part], None)
        if column.name in OF_PROGRESS:
            return Value(self._progress(column.name), None)
        if column.name == "state":
            return Value(case(STATES, value=JOBS.c.state), None)
        if column.name in ("age", "duration"):
            start = JOBS.c.created_at if column.name == "age" else JOBS.c.started_at
            end = (
                self._now if column.name == "age" else func.coalesce(JOBS.c.finished_at, self._now)
            )
            return Value(end - start, None)
        named = _NAMED[column.name]
        if column.kind is Kind.TEXT:
            return Value(None, plain(unindexed(named)))
        return Value(type_coerce(unindexed(named), named.type), None)

    def _progress(self, name: str) -> ColumnElement[Any]:
        row = self._join(table_of(ProgressRow), None, "")
        step = case((row.c.attempt > 0, row.c.step))
        if name == "step":
            return step
        share = least(cast(step, Double) / JOBS.c.steps, 1.0)
        # The points of its last steps may be missing after a restored backup.
        ended = and_(JOBS.c.state == JobState.SUCCEEDED, step.is_not(None))
        return case((JOBS.c.steps.is_(None) | step.is_(None), null()), (ended, 1.0), else_=share)

    def _join(self, table: FromClause, key: str | None, name: str) -> FromClause:
        known = self._aliases.get((table, name))
        if known is None:
            known = self._aliases[table, name] = table.alias(f"c{len(self._aliases)}")
            on = known.c.job_id == JOBS.c.id
            self._joined = self._joined.outerjoin(
                known, on if key is None else and_(known.c[key] == name, on)
            )
        return known


def _of_first(rows: Sequence[FromClause], column: str) -> ColumnElement[Any]:
    """Return a column of the first of some settings that a job has."""
    if len(rows) == 1:
        return rows[0].c[column]
    return case(*((row.c.job_id.is_not(None), row.c[column]) for row in rows))


def readable(among: Within) -> ColumnElement[bool]:
    """Condition: a job is one of some projects."""
    return true() if among.projects is None else JOBS.c.project.in_(sorted(among.projects))


def of_settings(
    session: Session, job_ids: Sequence[str], columns: Sequence[Column]
) -> dict[str, dict[str, float | str]]:
    """Return the settings of the jobs among ``columns``, by job and column."""
    wanted = [column for column in columns if column.source == "setting"]
    paths = {path for column in wanted for path in column.paths}
    row = JobValueRow
    statement = select(row.job_id, row.key, row.number, row.text).where(
        row.key.in_(paths), row.job_id.in_(job_ids)
    )
    stored = {
        (job_id, key): text if text is not None else number or 0.0
        for job_id, key, number, text in (session.execute(statement) if paths else ())
    }
    found: dict[str, dict[str, float | str]] = {}
    for job_id in job_ids:
        for column in wanted:
            has = [stored[job_id, path] for path in column.paths if (job_id, path) in stored]
            if has:
                found.setdefault(job_id, {})[str(column)] = has[0]
    return found


def of_metrics(
    session: Session, job_ids: Sequence[str], columns: Sequence[Column]
) -> dict[str, dict[str, float | str]]:
    """As :func:`of_settings`, for metrics, which are in the series database."""
    wanted = [column for column in columns if column.source == "metric"]
    names = {column.name for column in wanted}
    statement = select(SeriesLatestRow).where(
        SeriesLatestRow.job_id.in_(job_ids), SeriesLatestRow.name.in_(names)
    )
    found: dict[str, dict[str, float | str]] = {}
    for row in session.scalars(statement) if names else ():
        parts: Mapping[str, float | None] = {"last": row.value, "min": row.min, "max": row.max}
        for column in wanted:
            if column.name == row.name:
                value = parts[column.part]
                shown = jsonable(math.nan if value is None else value)
                found.setdefault(row.job_id, {})[str(column)] = shown
    return found
