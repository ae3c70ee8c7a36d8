"""Lists of jobs by page, and version marks that detect unchanged lists without reading them.

Not here: single jobs (``storage.jobs.jobs``), and the order of placement
(``domain.scheduling.decide``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, func, or_, select, true
from sqlalchemy.orm import InstrumentedAttribute, Session

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.rights import Within
from lockstep.storage.db.tables import AssignmentRow, JobLabelRow, JobRow

Order = Literal["newest", "oldest"]
CURSOR: Final = r"^[0-9a-f-]{36}$"
COUNTED_MAX: Final = 10_000
"""Jobs that are counted at most, so that a total costs as much on a list of millions."""
ID_PART: Final = re.compile(r"^[0-9a-f-]{4,36}$")
"""Shortest part of an id in a search: shorter ones match by chance."""


class PageMark(NamedTuple):
    """Version mark of a listed job, without its document."""

    id: str
    version: int
    was_placed: bool
    is_queued: bool
    is_unseen: bool
    """True if it is queued and the scheduler has stored no reason yet."""


MARK: Final = (
    JobRow.id,
    JobRow.version,
    (JobRow.attempt_count > 0).label("was_placed"),
    (JobRow.state == JobState.QUEUED).label("is_queued"),
    ((JobRow.state == JobState.QUEUED) & JobRow.wait_reason.is_(None)).label("is_unseen"),
)


@dataclass(frozen=True)
class JobQuery:
    """Filter of a list of jobs, by age. All given conditions must hold.

    The cursor is the last id of the page before, and ids grow with time: jobs submitted meanwhile
    neither push a job onto the next page a second time nor hide one.
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
    cursor: str | None = None
    order: Order = "newest"

    def statement(self) -> Select[JobRow]:
        """Every job that is chosen.

        Raises
        ------
        LockstepError
            ``INVALID`` for a cursor that no page has given.
        """
        if self.cursor is not None and not re.fullmatch(CURSOR, self.cursor):
            raise LockstepError(
                ErrorCode.INVALID,
                f"{self.cursor!r} is not a cursor of this list",
                next_step="Use next_cursor of a page.",
            )
        statement = select(JobRow)
        if self.states:
            statement = statement.where(JobRow.state.in_(self.states))
        if self.search is not None:
            statement = statement.where(_found_by(self.search))
        if self.name is not None:
            statement = statement.where(JobRow.name == self.name)
        for column, pattern in ((JobRow.project, self.project), (JobRow.actor, self.owner)):
            if pattern is not None:
                statement = statement.where(_matches(column, pattern))
        if self.node is not None:
            placed = select(AssignmentRow.job_id).where(AssignmentRow.node_name == self.node)
            statement = statement.where(JobRow.id.in_(placed))
        if self.label is not None:
            key, value = self.label
            labelled = select(JobLabelRow.job_id).where(
                JobLabelRow.key == key, JobLabelRow.value == value
            )
            statement = statement.where(JobRow.id.in_(labelled))
        if self.order == "newest":
            statement = statement.order_by(JobRow.id.desc())
            return statement if self.cursor is None else statement.where(JobRow.id < self.cursor)
        statement = statement.order_by(JobRow.id)
        return statement if self.cursor is None else statement.where(JobRow.id > self.cursor)


EVERY: Final = JobQuery()


def _matches(column: InstrumentedAttribute[str], pattern: str) -> ColumnElement[bool]:
    if "*" not in pattern:
        return column == pattern
    escaped = re.sub(r"([%_/])", r"/\1", pattern)
    return column.ilike(escaped.replace("*", "%"), escape="/")


def _found_by(text: str) -> ColumnElement[bool]:
    part = text.lower()
    named = JobRow.name.contains(part, autoescape=True)
    return or_(named, part_of_id(part)) if ID_PART.fullmatch(part) else named


def part_of_id(part: str) -> ColumnElement[bool]:
    """Condition: a job's id begins or ends with the text."""
    return or_(JobRow.id.like(f"{part}%"), JobRow.id.like(f"%{part}"))


def readable(among: Within) -> ColumnElement[bool]:
    """Condition: a job is one of some projects."""
    return true() if among.projects is None else JobRow.project.in_(sorted(among.projects))


def page(
    session: Session, choice: JobQuery = EVERY, *, among: Within, limit: int
) -> tuple[list[JobRow], str | None]:
    """One page of jobs, and the cursor of the next; None on the last."""
    rows = list(session.scalars(choice.statement().where(readable(among)).limit(limit + 1)))
    return rows[:limit], rows[limit - 1].id if len(rows) > limit else None


def total(
    connection: Connection,
    choice: JobQuery,
    marks: Sequence[PageMark],
    *,
    among: Within,
    limit: int,
) -> int:
    """Number of chosen jobs on all pages, at most ``COUNTED_MAX``.

    ``marks`` are those of a page: the only page is counted without another statement.
    """
    if choice.cursor is None and len(marks) <= limit:
        return len(marks)
    whole = replace(choice, cursor=None).statement().where(readable(among)).order_by(None)
    counted = whole.limit(COUNTED_MAX).with_only_columns(JobRow.id).subquery()
    return connection.scalar(select(func.count()).select_from(counted)) or 0


def page_marks(
    connection: Connection, choice: JobQuery = EVERY, *, among: Within, limit: int
) -> list[PageMark]:
    """Marks of the jobs on a page, and of the one behind it, if there is one."""
    return [PageMark(*row) for row in connection.execute(_marking(choice, among, limit + 1))]


@lru_cache(maxsize=64)
def _marking(choice: JobQuery, among: Within, limit: int) -> Select[str, int, bool, bool, bool]:
    """The statement, kept because a page that is open asks for the same again and again."""
    return choice.statement().where(readable(among)).limit(limit).with_only_columns(*MARK)


def queued(
    session: Session, *, among: Within, limit: int, project: str | None = None
) -> list[JobRow]:
    """The first queued jobs, in the order of the scheduler; those without a place yet are last.

    ``project`` is as in :class:`JobQuery`.
    """
    return list(session.scalars(_queued(among, project).limit(limit)))


def queued_marks(
    connection: Connection, *, among: Within, limit: int, project: str | None = None
) -> list[PageMark]:
    """Marks of the first queued jobs."""
    statement = _queued(among, project).limit(limit).with_only_columns(*MARK)
    return [PageMark(*row) for row in connection.execute(statement)]


def _queued(among: Within, project: str | None) -> Select[JobRow]:
    queue = select(JobRow).where(JobRow.state == JobState.QUEUED, readable(among))
    if project is not None:
        queue = queue.where(_matches(JobRow.project, project))
    place = JobRow.wait_position
    return queue.order_by(place.is_(None), place, JobRow.priority.desc(), JobRow.id)
