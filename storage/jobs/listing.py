"""Lists of jobs by page, and version marks that detect unchanged lists without reading them.

Not here: single jobs (``storage.jobs.jobs``), totals and groups of a list
(``storage.jobs.summaries``), and the order of placement (``domain.scheduling.decide``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, false, func, or_, select
from sqlalchemy.orm import Session

from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.listing.columns import NEWEST, Column, Sort
from lockstep.domain.rights import Within
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.dialects import unindexed
from lockstep.storage.db.listing_tables import JobLabelRow
from lockstep.storage.db.tables import AssignmentRow, JobRow
from lockstep.storage.jobs import cursors
from lockstep.storage.jobs.columns import JOBS, OF_PROGRESS, Tables, readable
from lockstep.storage.jobs.conditions import Condition, found_by, matches
from lockstep.storage.jobs.cursors import Place

COUNTED_MAX: Final = 10_000
"""Jobs that are counted at most without ``totals``: each poll of a list of millions would count."""
_TICKING: Final = frozenset({"age", "duration"})
_ALWAYS: Final = frozenset(
    "name id kind owner project state created gpus priority attempts age".split()
)
"""Columns that have a value in each job."""


class PageMark(NamedTuple):
    """Version mark of a listed job, without its document."""

    id: str
    version: int
    was_placed: bool
    is_queued: bool
    is_unseen: bool
    """True if it is queued and the scheduler has stored no reason yet."""


MARK: Final = (
    JOBS.c.id,
    JOBS.c.version,
    (JOBS.c.attempt_count > 0).label("was_placed"),
    (JOBS.c.state == JobState.QUEUED).label("is_queued"),
    ((JOBS.c.state == JobState.QUEUED) & JOBS.c.wait_reason.is_(None)).label("is_unseen"),
)
_MARKED: Final = select(*MARK).where(JOBS.c.id.in_(bindparam("job_ids", expanding=True)))


@dataclass(frozen=True)
class JobQuery:
    """Filter and order of a list of jobs. All given conditions must hold.

    The cursor is the place of the last job of the page before: jobs submitted meanwhile neither
    push a job onto the next page a second time nor hide one.
    """

    states: tuple[JobState, ...] = ()
    search: str | None = None
    """A part of the name, or a beginning or an end of the id; capitals as small letters, of which
    both are made."""
    name: str | None = None
    project: str | None = None
    """The name, or a pattern of it: ``*`` stands for any text, and capitals count as small
    letters."""
    owner: str | None = None
    """As ``project``, for the name of the user."""
    node: str | None = None
    """Node of any of its attempts."""
    label: tuple[str, str] | None = None
    conditions: tuple[Condition, ...] = ()
    cursor: str | None = None
    sort: Sort = NEWEST

    @property
    def needs_series(self) -> bool:
        """True if its statements read the series database, too (``Database.look_lists``)."""
        columns = [each.column for each in self.conditions if each.column is not None]
        return any(map(of_series, [*columns, self.sort.column]))

    def chosen(self, tables: Tables, among: Within) -> list[ColumnElement[bool]]:
        """Return the conditions of a job on any page."""
        found = [readable(among), *(each.sql(tables) for each in self.conditions)]
        if self.states:
            found.append(JOBS.c.state.in_(self.states))
        if self.search is not None:
            found.append(found_by(self.search))
        if self.name is not None:
            found.append(JOBS.c.name == self.name)
        for column, pattern in ((JOBS.c.project, self.project), (JOBS.c.actor, self.owner)):
            if pattern is not None:
                found.append(_is_or_like(column, pattern))
        if self.node is not None:
            placed = select(AssignmentRow.job_id).where(AssignmentRow.node_name == self.node)
            found.append(JOBS.c.id.in_(placed))
        if self.label is not None:
            key, value = self.label
            labelled = select(JobLabelRow.job_id).where(
                JobLabelRow.key == key, JobLabelRow.value == value
            )
            found.append(JOBS.c.id.in_(labelled))
        return found


EVERY: Final = JobQuery()


def of_series(column: Column) -> bool:
    """Return whether a column is in the series database."""
    return column.source == "metric" or (column.source == "job" and column.name in OF_PROGRESS)


def _is_or_like(column: ColumnElement[str], pattern: str) -> ColumnElement[bool]:
    return matches(column, pattern) if "*" in pattern else column == pattern


class Places(NamedTuple):
    """Jobs of one page, in order."""

    ids: list[str]
    cursor: str | None
    """Of the next page; None on the last."""
    marks: list[PageMark] | None = None
    """Marks of these jobs, if they are in the order of their ids. The statement of another order
    may sort all jobs, and sorts narrow rows faster."""


def places(
    connection: Connection, choice: JobQuery = EVERY, *, among: Within, limit: int
) -> Places:
    """Return the ids of one page, and the cursor of the next.

    Raises
    ------
    LockstepError
        ``INVALID`` for a cursor that no page of this order has given.
    """
    after = None if choice.cursor is None else cursors.read(choice.cursor, choice.sort)
    now = None if after is None else after.now
    if now is None and str(choice.sort.column) in _TICKING:
        # The durations of all pages are those of one moment.
        now = float(connection.execute(select(db_now())).scalar_one())
    statement = _placing(replace(choice, cursor=None), after, among, limit + 1, now)
    rows = connection.execute(statement).all()
    found = [row[0] for row in rows[:limit]]
    marked, keys = None, rows[limit - 1][1:] if len(rows) > limit else ()
    if choice.sort.column == NEWEST.column:
        marked, keys = [PageMark(*row) for row in rows[:limit]], ()
    if len(rows) <= limit:
        return Places(found, None, marked)
    cursor = cursors.written(Place(found[-1], tuple(keys), now), choice.sort)
    return Places(found, cursor, marked)


@lru_cache(maxsize=64)
def _placing(
    choice: JobQuery, after: Place | None, among: Within, limit: int, now: float | None
) -> Select[Any]:
    """The statement, kept because a page that is open asks for the same again and again."""
    tables = Tables(now)
    conditions = choice.chosen(tables, among)
    sort, down = choice.sort, choice.sort.descending
    if sort.column == NEWEST.column:
        # Ids grow with time, and are an index.
        statement = select(*MARK).order_by(JOBS.c.id.desc() if down else JOBS.c.id)
        if after is not None:
            conditions.append(JOBS.c.id < after.job_id if down else JOBS.c.id > after.job_id)
    else:
        keys = tables.value(sort.column).parts
        statement = select(JOBS.c.id, *keys)
        for key in keys:
            ordered = key.desc() if down else key
            empty = [] if str(sort.column) in _ALWAYS else [key.is_(None)]
            statement = statement.order_by(*empty, ordered)
        statement = statement.order_by(unindexed(JOBS.c.id).desc())
        if after is not None:
            conditions.append(_behind(keys, after, down=down))
    return statement.select_from(tables.joined).where(*conditions).limit(limit)


def _behind(keys: Sequence[ColumnElement[Any]], after: Place, *, down: bool) -> ColumnElement[bool]:
    """Condition: a job comes after a place. Without a value it comes last."""
    same: list[ColumnElement[bool]] = []
    ways = []
    for key, value in zip(keys, after.keys, strict=True):
        if value is None:
            behind: ColumnElement[bool] = false()
        else:
            behind = or_(key < value if down else key > value, key.is_(None))
        ways.append(and_(*same, behind))
        same.append(key.is_(None) if value is None else key == value)
    return or_(*ways, and_(*same, JOBS.c.id < after.job_id))


def marks(connection: Connection, job_ids: Sequence[str]) -> list[PageMark]:
    """Return the marks of jobs in this order, without those that are no more."""
    found = connection.execute(_MARKED, {"job_ids": list(job_ids)})
    known = {row[0]: PageMark(*row) for row in found}
    return [known[job_id] for job_id in job_ids if job_id in known]


def rows(session: Session, job_ids: Sequence[str]) -> list[JobRow]:
    """Return jobs in this order, without those that are no more."""
    known = {row.id: row for row in session.scalars(select(JobRow).where(JobRow.id.in_(job_ids)))}
    return [known[job_id] for job_id in job_ids if job_id in known]


def page(
    session: Session, choice: JobQuery = EVERY, *, among: Within, limit: int
) -> tuple[list[JobRow], str | None]:
    """One page of jobs, and the cursor of the next; None on the last."""
    found = places(session.connection(), choice, among=among, limit=limit)
    return rows(session, found.ids), found.cursor


def total(connection: Connection, choice: JobQuery, found: Places, *, among: Within) -> int:
    """Number of chosen jobs on all pages, ``COUNTED_MAX`` at most; ``found`` is one of them."""
    if choice.cursor is None and found.cursor is None:
        return len(found.ids)
    return connection.scalar(_counting(replace(choice, cursor=None), among, COUNTED_MAX)) or 0


@lru_cache(maxsize=64)
def _counting(choice: JobQuery, among: Within, most: int) -> Select[int]:
    """The statement, kept for polls."""
    tables = Tables()
    conditions = choice.chosen(tables, among)
    some = select(JOBS.c.id).select_from(tables.joined).where(*conditions).limit(most)
    return select(func.count()).select_from(some.subquery())


def queued(
    session: Session, *, among: Within, limit: int, project: str | None = None
) -> list[JobRow]:
    """The first queued jobs, in the order of the scheduler; those without a place yet are last.

    ``project`` is as in :class:`JobQuery`.
    """
    return list(session.scalars(_queued(among, project).limit(limit)))


def ahead(
    session: Session, position: int, *, among: Within, limit: int
) -> tuple[list[JobRow], int]:
    """Return the first readable jobs with an earlier place, and the number of all of them."""
    before = (JobRow.state == JobState.QUEUED, JobRow.wait_position < position)
    earlier = select(JobRow).where(*before, readable(among)).order_by(JobRow.wait_position)
    count = session.scalar(select(func.count()).select_from(JobRow).where(*before))
    return list(session.scalars(earlier.limit(limit))), count or 0


def queued_marks(
    connection: Connection,
    *,
    among: Within,
    limit: int,
    skip: int = 0,
    project: str | None = None,
) -> list[PageMark]:
    """Marks of queued jobs in their order, after the first ``skip``."""
    statement = _queued(among, project).limit(limit).offset(skip).with_only_columns(*MARK)
    return [PageMark(*row) for row in connection.execute(statement)]


def _queued(among: Within, project: str | None) -> Select[JobRow]:
    queue = select(JobRow).where(JobRow.state == JobState.QUEUED, readable(among))
    if project is not None:
        queue = queue.where(_is_or_like(JOBS.c.project, project))
    place = JobRow.wait_position
    return queue.order_by(place.is_(None), place, JobRow.priority.desc(), JobRow.id)
