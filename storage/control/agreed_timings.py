"""Timings on which all programs of an installation agree: one row of the jobs database.

The scheduler stores them in the first cycle of its process. Every other program reads them where it
needs them, so a change needs no restart of it. A second scheduler that started earlier follows.

Not here: the values and their order (``domain.life.timings``).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from lockstep.domain.life.timings import Timings
from lockstep.storage.control.scheduler_lease import ONLY
from lockstep.storage.db.dialects import write
from lockstep.storage.db.tables import SchedulerLeaseRow

DEFAULTS: Final = Timings()


def read(session: Session, unset: Timings = DEFAULTS) -> Timings:
    """Return the timings of this installation; ``unset`` if no scheduler has stored any yet."""
    return stored(session) or unset


def stored(session: Session) -> Timings | None:
    """Return the stored timings; None before the first scheduler, or for values not valid here.

    A newer version may have another order. A reader then keeps its own timings: without renewals
    all its ranks would end.
    """
    statement = select(SchedulerLeaseRow.timings).where(SchedulerLeaseRow.id == ONLY)
    found = session.execute(statement).scalar_one_or_none()
    try:
        return None if found is None else Timings.of(found)
    except (TypeError, ValueError):
        return None


def store(session: Session, timings: Timings) -> None:
    """Make these the timings of all programs."""
    statement = update(SchedulerLeaseRow).where(SchedulerLeaseRow.id == ONLY)
    write(session, statement.values(timings=asdict(timings)))
