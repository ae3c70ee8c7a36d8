"""Lease that keeps other schedulers out while one reconciles. It is one row.

A scheduler that finds the lease taken marks the row dirty and returns; the holder then runs another
cycle. The lease expires on the database's clock, so a dead scheduler holds it for a limited time.

Not here: the reconcile cycle (``scheduler``).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, or_, select, update
from sqlalchemy.orm import Session

from lockstep.storage.control.places import place_of
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.dialects import write
from lockstep.storage.db.tables import SchedulerLeaseRow

ONLY: Final = 1
"""The id of the one row; the first migration writes it."""


def take(session: Session, owner: str, *, ttl_seconds: float) -> float | None:
    """Take the lease if it is free or expired, and clear its dirty mark.

    Return the end of the lease by the database's clock, which identifies it; None if another
    scheduler holds it.

    A lease that ends much later than ``ttl_seconds`` from now shows that the database's clock was
    set back.
    """
    over = or_(
        SchedulerLeaseRow.expires_at < db_now(),
        SchedulerLeaseRow.expires_at > db_now() + 2 * ttl_seconds,
    )
    free = or_(SchedulerLeaseRow.owner.is_(None), SchedulerLeaseRow.owner == owner, over)
    statement = update(SchedulerLeaseRow).where(SchedulerLeaseRow.id == ONLY, free)
    taken = write(
        session,
        statement.values(owner=owner, expires_at=db_now() + ttl_seconds, dirty=False).returning(
            SchedulerLeaseRow.expires_at
        ),
    )
    row = taken.one_or_none()
    return None if row is None else float(row[0])


def _is(owner: str, lease: float | None) -> tuple[ColumnElement[bool], ...]:
    held = (SchedulerLeaseRow.id == ONLY, SchedulerLeaseRow.owner == owner)
    return held if lease is None else (*held, SchedulerLeaseRow.expires_at == lease)


def holds(session: Session, owner: str, lease: float) -> bool:
    """Return whether the lease is the one that :func:`take` gave.

    It then stays so until the end of the transaction. It is not if another scheduler has taken it,
    or if a backup was restored since: then nothing that was read before is valid.
    """
    statement = select(SchedulerLeaseRow.id).where(*_is(owner, lease)).with_for_update()
    return session.execute(statement).scalar_one_or_none() is not None


def mark_dirty(session: Session) -> None:
    """Ask the holder of the lease for another cycle."""
    write(session, update(SchedulerLeaseRow).where(SchedulerLeaseRow.id == ONLY).values(dirty=True))


def give_back(session: Session, owner: str, lease: float | None = None) -> bool:
    """End the cycle and note when; True when another is asked for.

    False also for one that is no longer the holder, or not under this lease.
    """
    held = _is(owner, lease)
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


def was_restored(session: Session) -> bool:
    """Return whether a backup was restored since the last cycle, and note it.

    Call it under the lease.
    """
    place = place_of(session.connection())
    row = update(SchedulerLeaseRow).where(SchedulerLeaseRow.id == ONLY)
    known = session.scalars(select(SchedulerLeaseRow.place)).one_or_none()
    if known == place:
        return False
    write(session, row.values(place=place))
    if known is None:
        return False
    write(session, row.values(restored_at=db_now()))
    return True


def since_restore_seconds(session: Session) -> float | None:
    """Seconds since a cycle found a restored backup; None if none did."""
    statement = select(db_now() - SchedulerLeaseRow.restored_at).where(SchedulerLeaseRow.id == ONLY)
    found = session.execute(statement).scalar_one_or_none()
    return None if found is None else float(found)


def gap_seconds(session: Session) -> float:
    """Seconds since the last cycle ended, 0 if there never was one.

    A large gap means that the service was away.
    """
    return silent_seconds(session) or 0.0


def silent_seconds(session: Session) -> float | None:
    """Seconds since the last cycle ended; None if there never was one."""
    statement = select(db_now() - SchedulerLeaseRow.finished_at).where(SchedulerLeaseRow.id == ONLY)
    gap = session.execute(statement).scalar_one_or_none()
    return None if gap is None else max(0.0, float(gap))
