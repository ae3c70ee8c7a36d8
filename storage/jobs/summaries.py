"""A list of jobs as it is asked for: a page, and the totals of the whole list and of its groups.

Not here: statements of pages (``storage.jobs.listing``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, case, func, null, select, type_coerce

from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.listing.columns import NEWEST, Column
from lockstep.domain.rights import Within
from lockstep.storage.db.database import Database
from lockstep.storage.db.dialects import unindexed
from lockstep.storage.jobs import listing
from lockstep.storage.jobs.columns import JOBS, Tables
from lockstep.storage.jobs.listing import JobQuery, PageMark

GROUPS_MAX: Final = 200
"""Groups of one answer, those with most jobs."""
HOLDING: Final = (JobState.STARTING, JobState.RUNNING)
"""States in which a job holds its devices."""
_STATE: Final = type_coerce(unindexed(JOBS.c.state), JOBS.c.state.type)
_IN_USE: Final = func.coalesce(
    func.sum(case((JOBS.c.state.in_(HOLDING), JOBS.c.devices), else_=0)), 0
)


@dataclass
class Totals:
    """Numbers of some jobs."""

    states: dict[JobState, int] = field(default_factory=dict)
    total: int = 0
    gpus_in_use: int = 0
    """Devices of jobs that start or run."""
    best: float | None = None
    """Value of the first of the jobs in the order of the list, if it is a number."""

    def add(self, state: JobState, count: int, gpus: int, best: float | None, sign: int) -> None:
        self.states[state] = self.states.get(state, 0) + count
        self.total += count
        self.gpus_in_use += gpus
        if best is not None and (self.best is None or sign * best < sign * self.best):
            self.best = best


def totals(connection: Connection, choice: JobQuery, *, among: Within) -> Totals:
    """Return the totals of a list.

    ``states`` counts the jobs of all states that its other conditions choose.
    """
    statement = _counting(replace(choice, states=(), cursor=None, sort=NEWEST), among)
    found, chosen = Totals(), Totals()
    for state, count, gpus in connection.execute(statement):
        found.states[state] = count
        if not choice.states or state in choice.states:
            chosen.add(state, count, gpus, None, 1)
    return replace(chosen, states=found.states)


@lru_cache(maxsize=64)
def _counting(choice: JobQuery, among: Within) -> Select[JobState, int, int]:
    """The statement of the totals, kept for polls."""
    tables = Tables()
    conditions = choice.chosen(tables, among)
    return (
        select(_STATE, func.count(), _IN_USE)
        .select_from(tables.joined)
        .where(*conditions)
        .group_by(_STATE)
    )


def groups(
    connection: Connection, choice: JobQuery, by: Column, *, among: Within
) -> tuple[dict[str | None, Totals], int]:
    """Return the totals of each group of a list, largest first, and the number of all groups.

    Jobs without a value are the group None.
    """
    tables = Tables()
    conditions = choice.chosen(tables, among)
    keys = tables.value(by).parts
    best, sign = _best(choice, tables)
    statement = (
        select(*keys, _STATE, func.count(), _IN_USE, best)
        .select_from(tables.joined)
        .where(*conditions)
        .group_by(*keys, _STATE)
    )
    found: dict[str | None, Totals] = {}
    for *values, state, count, gpus, value in connection.execute(statement):
        name = next((_shown(each) for each in values if each is not None), None)
        found.setdefault(name, Totals()).add(state, count, gpus, value, sign)
    largest = sorted(found.items(), key=lambda item: (-item[1].total, item[0] or ""))
    return dict(largest[:GROUPS_MAX]), len(found)


def _best(choice: JobQuery, tables: Tables) -> tuple[ColumnElement[Any], int]:
    column = choice.sort.column
    number = None if column == NEWEST.column else tables.value(column).number
    if number is None or str(column) == "state":
        return null(), 1
    return (func.max(number), -1) if choice.sort.descending else (func.min(number), 1)


def _shown(value: float | str) -> str:
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


@dataclass(frozen=True)
class Listed:
    """A page of a list, with what was asked for beside it."""

    marks: list[PageMark]
    cursor: str | None
    """Of the next page; None on the last."""
    total: int
    """Jobs on all pages."""
    totals: Totals | None = None
    groups: dict[str | None, Totals] = field(default_factory=dict)
    groups_total: int = 0


def listed(
    database: Database,
    choice: JobQuery,
    *,
    among: Within,
    limit: int,
    with_totals: bool = False,
    group: Column | None = None,
) -> Listed:
    """Return a page, and the totals of its list if they or those of groups are asked for."""
    looking = database.look_lists if choice.needs_series else database.look_jobs
    with looking() as look:
        found = listing.places(look, choice, among=among, limit=limit)
        marks = listing.marks(look, found.ids) if found.marks is None else found.marks
        if not with_totals and group is None:
            total = listing.total(look, choice, found, among=among)
            return Listed(marks, found.cursor, total)
        whole = totals(look, choice, among=among)
        by_value, count = ({}, 0) if group is None else groups(look, choice, group, among=among)
        return Listed(marks, found.cursor, whole.total, whole, by_value, count)
