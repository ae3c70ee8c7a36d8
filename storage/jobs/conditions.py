"""Tokens of a filter as SQL conditions.

Not here: the grammar (``domain.listing.tokens``), columns as SQL (``storage.jobs.columns``).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, false, func, not_, or_, select

from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.listing.columns import Column, Kind
from lockstep.domain.listing.tokens import Op, Token, TokenError, check_choice, day_of, number_of
from lockstep.storage.db.dialects import certain, table_of
from lockstep.storage.db.listing_tables import JobLabelRow
from lockstep.storage.db.tables import AssignmentRow
from lockstep.storage.jobs.columns import JOBS, Tables

ID_PART: Final = re.compile(r"^[0-9a-f-]{4,36}$")
"""Shortest part of an id in a search: shorter ones match by chance."""
_ID_CHARS: Final = 36
_LABELS: Final = table_of(JobLabelRow)
_COMPARED: Final[dict[Op, Callable[[Any, Any], ColumnElement[bool]]]] = {
    Op.LESS: operator.lt,
    Op.AT_MOST: operator.le,
    Op.MORE: operator.gt,
    Op.AT_LEAST: operator.ge,
}


@dataclass(frozen=True)
class Condition:
    """A token whose column is known; None for a word."""

    column: Column | None
    op: Op
    values: tuple[str, ...]

    def sql(self, tables: Tables) -> ColumnElement[bool]:
        """Return the condition; its tables are joined."""
        if self.column is None:
            return found_by(self.values[0])
        if self.op in _COMPARED:
            number = tables.value(self.column).number
            assert number is not None
            bound = number_of(self.column.kind, self.values[0])
            return certain(_COMPARED[self.op](number, bound))
        if str(self.column) == "id":
            met = _with_ids(self.values)
            return met if self.op is Op.IS else not_(met)
        met = or_(*(_equal(self.column, value, tables) for value in self.values))
        # A job without a value has none of these values.
        return certain(met) if self.op is Op.IS else not_(func.coalesce(met, false()))


def condition_of(token: Token, column: Column | None) -> Condition:
    """Return the condition of a token.

    Raises
    ------
    TokenError
        For a value that its column cannot have, or an operator that does not fit.
    """
    if column is not None and token.op in _COMPARED:
        if column.kind is Kind.TEXT:
            raise TokenError(
                f"{column.name} is a text and has no order",
                f"Write {column.name}:{token.values[0]}.",
            )
        number_of(column.kind, token.values[0])
    elif column is not None:
        for value in token.values:
            check_choice(str(column), value)
            if column.kind not in (Kind.TEXT, Kind.ANY):
                number_of(column.kind, value)
    return Condition(column, token.op, token.values)


def _equal(column: Column, value: str, tables: Tables) -> ColumnElement[bool]:
    if column.source == "label":
        return _labelled(_LABELS.c.key == column.name, matches(_LABELS.c.value, value))
    if str(column) in _OWN:
        return _OWN[str(column)](value)
    kind = column.kind
    found = tables.value(column)
    if kind is Kind.TEXT:
        assert found.text is not None
        return matches(found.text, value)
    day = day_of(value) if kind is Kind.MOMENT else None
    assert found.number is not None
    if day is not None:
        return and_(found.number >= day[0], found.number < day[1])
    if kind is not Kind.ANY:
        return found.number == number_of(kind, value)
    assert found.text is not None
    try:
        return or_(found.number == number_of(Kind.NUMBER, value), matches(found.text, value))
    except TokenError:
        return matches(found.text, value)


def _with_ids(values: tuple[str, ...]) -> ColumnElement[bool]:
    """Condition: one of these ids, whole or an end. Whole ids alone are read by the index."""
    lower = [value.lower() for value in values]
    ends = [part_of_id(value) for value in lower if len(value) < _ID_CHARS]
    return or_(JOBS.c.id.in_([value for value in lower if len(value) >= _ID_CHARS]), *ends)


def _with_label(value: str) -> ColumnElement[bool]:
    return _labelled(or_(matches(_LABELS.c.key, value), matches(_LABELS.c.value, value)))


def _placed_on(value: str) -> ColumnElement[bool]:
    part = table_of(AssignmentRow)
    return JOBS.c.id.in_(select(part.c.job_id).where(matches(part.c.node_name, value)))


def _in_state(value: str) -> ColumnElement[bool]:
    return JOBS.c.state.in_([state for state in JobState if fnmatchcase(state, value.lower())])


def _starred(value: str) -> ColumnElement[bool]:
    words = {"yes": True, "no": False}
    fitting = [words[word] for word in words if fnmatchcase(word, value.lower())]
    return JOBS.c.starred.in_(fitting)


def _labelled(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    return JOBS.c.id.in_(select(_LABELS.c.job_id).where(*conditions))


def matches(column: Any, pattern: str) -> ColumnElement[bool]:
    """Condition: a text is this one, or like a pattern with ``*`` for any text, in any case."""
    if "*" not in pattern:
        # SQLite's lower() leaves letters outside of ASCII as they are.
        return or_(column == pattern, func.lower(column) == pattern.lower())
    escaped = re.sub(r"([%_/])", r"/\1", pattern)
    like: ColumnElement[bool] = column.ilike(escaped.replace("*", "%"), escape="/")
    return like


def found_by(text: str) -> ColumnElement[bool]:
    """Condition: the text is a part of the name, or an end of the id."""
    part = text.lower()
    named = JOBS.c.name.contains(part, autoescape=True)
    return or_(named, part_of_id(part)) if ID_PART.fullmatch(part) else named


def part_of_id(part: str) -> ColumnElement[bool]:
    """Condition: a job's id begins or ends with the text."""
    return or_(
        JOBS.c.id.startswith(part, autoescape=True), JOBS.c.id.endswith(part, autoescape=True)
    )


_OWN: Final[dict[str, Callable[[str], ColumnElement[bool]]]] = {
    "label": _with_label,
    "node": _placed_on,
    "state": _in_state,
    "starred": _starred,
}
"""Conditions of columns that are not compared as a number or a text."""
