"""Sums of device use: the average of each user, and hours by project, person or day.

Both read the ledger and the assignments that are not in it: live ones, and those that were released
a moment ago. One statement reads both, so each use is counted once.

Not here: rows of the ledger (``storage.attempts.ledger``).
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    CompoundSelect,
    Double,
    case,
    func,
    literal,
    or_,
    select,
    union_all,
)
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from lockstep.storage.db.tables import AssignmentRow, AttemptRow, JobRow, LedgerRow

HALF_LIVES_MAX: Final = 10
"""Older use is left out of an average: less than a thousandth of it would be left."""
HALF_LIFE_SECONDS: Final = 2 * 86_400.0


def average(
    session: Session, now: float, half_life_seconds: float = HALF_LIFE_SECONDS
) -> dict[tuple[str, str], float]:
    """Return the devices that each user used on average, by project and user.

    Use of age ``a`` has the weight ``2 ** (-a / half_life)``. The weights of ``n`` devices from
    ``b`` to ``e`` sum up to ``n * (2 ** ((e - now) / h) - 2 ** ((b - now) / h)) * h / ln 2``, and
    that is divided by ``h / ln 2``: constant use of ``n`` devices gives ``n``.

    Parameters
    ----------
    session : Session
    now : float
        On the database's clock.
    half_life_seconds : float, optional
    """
    since = now - HALF_LIVES_MAX * half_life_seconds
    use = _uses(since, now).subquery().c
    ends, begins = _earlier(use.released_at, now), _later(use.placed_at, since)

    def weight(at: ColumnElement[float]) -> ColumnElement[float]:
        return func.power(2.0, (at - now) / half_life_seconds, type_=Double)

    # A start after ``now``, by a clock that was set back, counts nothing.
    devices = func.sum(use.devices * (weight(ends) - weight(_earlier(begins, ends))))
    statement = select(use.project, use.actor, devices).group_by(use.project, use.actor)
    return {
        (project, actor): float(devices) for project, actor, devices in session.execute(statement)
    }


def _uses(since: float, until: float) -> CompoundSelect[Any]:
    """Select uses that overlap a time; those that go on end with it."""
    added = select(
        LedgerRow.project,
        LedgerRow.actor,
        LedgerRow.job_id,
        LedgerRow.devices,
        LedgerRow.placed_at,
        LedgerRow.released_at,
        LedgerRow.productive,
        LedgerRow.repeated,
    ).where(LedgerRow.released_at > since, LedgerRow.placed_at < until)
    part = AssignmentRow
    devices = func.json_array_length(part.device_indices)
    ends = _earlier(func.coalesce(part.ended_at, until), func.coalesce(AttemptRow.ended_at, until))
    ran = _later(ends - func.coalesce(AttemptRow.running_at, ends), 0.0)
    others = (
        select(
            JobRow.project,
            JobRow.actor,
            part.job_id,
            devices,
            part.created_at,
            func.coalesce(part.released_at, until),
            devices * ran,
            literal(0.0),
        )
        .join(AttemptRow, AttemptRow.id == part.attempt_id)
        .join(JobRow, JobRow.id == part.job_id)
        .where(
            part.accounted_at.is_(None),
            or_(part.released_at.is_(None), part.released_at > since),
            part.created_at < until,
        )
    )
    return union_all(added, others)


def _earlier(
    one: ColumnElement[float], other: ColumnElement[float] | float
) -> ColumnElement[float]:
    return case((one < other, one), else_=other)


def _later(one: ColumnElement[float], other: ColumnElement[float] | float) -> ColumnElement[float]:
    return case((one > other, one), else_=other)
