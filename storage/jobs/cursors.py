"""Cursors of lists of jobs: the place of a job in an order, as a text.

By age it is the job's id. In another order it also holds the values that the job was sorted by: a
value may change, or its job may be deleted, before the next page is read.

Not here: reading a page (``storage.jobs.listing``).
"""

from __future__ import annotations

import base64
import json
import math
import re
from dataclasses import dataclass
from typing import Final

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.listing.columns import NEWEST, Sort

CURSOR: Final = r"^[0-9A-Za-z_-]{36,2000}$"
CHARS_MAX: Final = 2_000
_ID: Final = re.compile(r"[0-9a-f-]{36}")
Key = float | str | None


@dataclass(frozen=True)
class Place:
    """Place of a job in an order."""

    job_id: str
    keys: tuple[Key, ...] = ()
    """Values that the order compares first; None for a job without a value."""
    now: float | None = None
    """The time at which durations were taken; None if none are compared."""


def written(place: Place, sort: Sort) -> str:
    """Return the cursor of a place."""
    if sort.column == NEWEST.column:
        return place.job_id
    parts = json.dumps([str(sort), place.now, place.keys, place.job_id], ensure_ascii=False)
    return base64.urlsafe_b64encode(parts.encode()).decode().rstrip("=")


def read(cursor: str, sort: Sort) -> Place:
    """Return the place of a cursor.

    Raises
    ------
    LockstepError
        ``INVALID`` for a text that no page in this order has given.
    """
    if sort.column == NEWEST.column:
        if _ID.fullmatch(cursor):
            return Place(cursor)
        raise _invalid(cursor)
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        order, now, keys, job_id = json.loads(base64.b64decode(padded, b"-_", validate=True))
        kinds = _kinds(sort)
        if order != str(sort) or not _ID.fullmatch(job_id) or len(keys) != len(kinds):
            raise _invalid(cursor)
        checked = tuple(map(_checked, keys, kinds))
        return Place(job_id, checked, None if now is None else float(_checked(now, float) or 0))
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise _invalid(cursor) from None


def _checked(key: object, kind: type) -> Key:
    """Return a key that a database takes for a value of its column.

    Raises
    ------
    ValueError, TypeError, OverflowError
        For another one.
    """
    if key is None:
        return None
    if kind is str and isinstance(key, str) and "\0" not in key:
        key.encode()  # not with half a pair of UTF-16
        return key
    number = float(key) if isinstance(key, int | float) else math.nan
    if kind is str or math.isnan(number) or isinstance(key, bool):
        raise ValueError("not a value of the column")
    return number


def _kinds(sort: Sort) -> tuple[type, ...]:
    kinds = {"text": (str,), "any": (float, str)}
    is_number = sort.column.name == "state" and sort.column.source == "job"
    return (float,) if is_number else kinds.get(sort.column.kind, (float,))


def _invalid(cursor: str) -> LockstepError:
    return LockstepError(
        ErrorCode.INVALID,
        f"{cursor!r} is not a cursor of this list",
        next_step="Use next_cursor of a page.",
    )
