"""Lease that keeps other schedulers out while one reconciles. It is one row.

A scheduler that finds the lease taken marks the row dirty and returns; the holder then runs another
cycle. The lease expires on the database's clock, so a dead scheduler holds it for a limited time.

Not here: the reconcile cycle (``scheduler``).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from lockstep.storage.db.clock import db_now
from lockstep.storage.db.dialects import changed, write
from lockstep.storage.db.tables import SchedulerLeaseRow

ONLY: Final = 1
"""The id of the one row; the first migration writes it."""


def take(session: Session, owner: str, *, ttl_seconds: float) -> bool:
    """Take the lease if it is free or expired, and clear its dirty mark.

    A lease that ends much later than ``ttl_seconds`` from now shows that the database's clock was
    set back.
    """
    over = or_(
        SchedulerLeaseRow.expires_at < db_now(),
        SchedulerLeaseRow.expires_at > db_now() + 2 * ttl_seconds,
    )
    free = or_(SchedulerLeaseRow.owner.is_(None), SchedulerLeaseRow.owner == owner, over)
    statement = update(SchedulerLeaseRow).where(SchedulerLeaseRow.id == ONLY, free)
    return (
        changed(
            session, statement.values(owner=owner, expires_at=db_now() + ttl_seconds, dirty=False)
        )
        == 1
    )


def mark_dirty(session: Session) -> None:
    """Ask the holder of the lease for another cycle."""
    write(session, update(SchedulerLeaseRow).where(SchedulerLeaseRow.id == ONLY).values(dirty=True))


def give_back(session: Session, owner: str) -> bool:
    """End the pass and note when; True when another is asked for.

    False also for one that is no longer the holder.
    """
    held = (SchedulerLeaseRow.id == ONLY, SchedulerLeaseRow.owner == owner)
    dirty = session.execute(
        select(SchedulerLeaseRow.dirty).where(*held).with_for_update()
    ).scalar_one_or_none()
    if dirty is None:
        return False
    write(
        session,
        update(SchedulerLeaseRow)
        .where(*held)
        .values(owner=None, expires_at=0.0, finished_at=db_now()),
    )
    return bool(dirty)


def was_set_back(session: Session) -> bool:
    """Return whether the database's clock was set back since the last cycle."""
    statement = select(SchedulerLeaseRow.finished_at > db_now()).where(SchedulerLeaseRow.id == ONLY)
    return bool(session.execute(statement).scalar_one_or_none())


def gap_seconds(session: Session) -> float:
    """Seconds since the last pass ended, 0 if there never was one.

    A large gap means that the service was away.
    """
    return silent_seconds(session) or 0.0


def silent_seconds(session: Session) -> float | None:
    """Seconds since the last pass ended; None if there never was one."""
    statement = select(db_now() - SchedulerLeaseRow.finished_at).where(SchedulerLeaseRow.id == ONLY)
    gap = session.execute(statement).scalar_one_or_none()
    return None if gap is None else max(0.0, float(gap))
