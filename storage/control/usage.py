"""Sums of device use: the average of each user, and totals by project, person or day.

Both read the ledger and the assignments that are not in it: live ones, and those that were released
a moment ago. One statement reads both, so each use is counted once.

Not here: rows of the ledger (``storage.attempts.ledger``).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import CompoundSelect, Double, func, literal, or_, select, union_all
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from lockstep.domain.people_views import UsageBy
from lockstep.domain.rights import Within
from lockstep.storage.db.dialects import DAY_SECONDS, greatest, least, midnight
from lockstep.storage.db.people_tables import LedgerRow
from lockstep.storage.db.tables import AssignmentRow, AttemptRow, JobRow

HALF_LIVES_MAX: Final = 10
"""Older use is left out of an average: less than a thousandth of it would be left."""
HALF_LIFE_SECONDS: Final = 2 * DAY_SECONDS


class Total(NamedTuple):
    """Device-seconds of a project, a person or a day."""

    name: str | float
    """Of the project or the person; of a day, its start in seconds since the epoch."""
    allocated: float
    productive: float
    repeated: float
    jobs: int


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

    def weight(at: ColumnElement[float]) -> ColumnElement[float]:
        return func.power(2.0, (at - now) / half_life_seconds, type_=Double)

    ends, begins = least(use.released_at, now), greatest(use.placed_at, since)
    devices = func.sum(use.devices * (weight(ends) - weight(begins)))
    statement = select(use.project, use.actor, devices).group_by(use.project, use.actor)
    return {
        (project, actor): float(devices) for project, actor, devices in session.execute(statement)
    }


def totals(
    session: Session,
    by: UsageBy,
    since: float,
    until: float,
    *,
    among: Within,
    project: str | None = None,
) -> list[Total]:
    """Return the use between two times, of projects that the caller may read.

    Of an assignment that is partly outside of the range, or of a day, each part counts in
    proportion. Steps of a run that goes on count as productive. Days are in their order, projects
    and people by their use.

    Parameters
    ----------
    session : Session
    by : UsageBy
    since, until : float
        ``until`` is not after the present time of the database: use that goes on ends with it.
    among : Within
    project : str, optional
        Only this one.
    """
    use = _uses(since, until).subquery().c
    held = use.released_at - use.placed_at
    found = select(
        use.project,
        use.actor,
        use.job_id,
        use.devices,
        (use.productive / held).label("productive"),
        (use.repeated / held).label("repeated"),
        greatest(use.placed_at, since).label("begins"),
        least(use.released_at, until).label("ends"),
    ).where(held > 0)
    if among.projects is not None:
        found = found.where(use.project.in_(sorted(among.projects)))
    if project is not None:
        found = found.where(use.project == project)
    pieces = found.cte("pieces", recursive=by is UsageBy.DAY)
    if by is UsageBy.DAY:
        # The rest of a piece from each midnight in it; below, a piece ends with its day.
        *same, begins, ends = pieces.c
        following = midnight(begins) + DAY_SECONDS
        pieces = pieces.union_all(select(*same, following, ends).where(following < ends))
    piece = pieces.c
    day = midnight(piece.begins)
    name: ColumnElement[Any] = {
        UsageBy.PROJECT: piece.project, UsageBy.USER: piece.actor, UsageBy.DAY: day,
    }[by]  # fmt: skip
    until_next = least(piece.ends, day + DAY_SECONDS) if by is UsageBy.DAY else piece.ends
    seconds = until_next - piece.begins
    allocated = func.sum(piece.devices * seconds)
    statement = select(
        name,
        allocated,
        func.sum(piece.productive * seconds),
        func.sum(piece.repeated * seconds),
        func.count(piece.job_id.distinct()),
    ).group_by(name)
    order = [day] if by is UsageBy.DAY else [allocated.desc(), name]
    return [Total._make(row) for row in session.execute(statement.order_by(*order))]


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
    released_at = func.coalesce(part.released_at, until)
    # As domain.life.held_time divides it.
    ends = least(
        func.coalesce(part.ended_at, released_at),
        func.coalesce(AttemptRow.ended_at, released_at),
        released_at,
    )
    begins = greatest(func.coalesce(AttemptRow.running_at, ends), part.created_at)
    others = (
        select(
            JobRow.project,
            JobRow.actor,
            part.job_id,
            devices,
            part.created_at,
            released_at,
            devices * greatest(ends - begins, 0.0),
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
