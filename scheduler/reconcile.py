"""One reconcile cycle: load, decide, apply.

1. Take the scheduler lease. If another scheduler holds it, return; if a notification requested
   this cycle, mark before that another one is needed. After a long time without any cycle the
   service itself was away: extend the lease of every live assignment before step 2. A backup that
   was restored does the same, and no job is placed before every node has ended the ranks whose
   assignment lease it could not renew (its fence): an older database lacks attempts that still
   run. A database clock that was set back delays nothing beyond the usual waits. The first cycle of
   a process, and the first after a restore, stores this scheduler's timings for all programs; the
   others follow the stored ones (``storage.control.agreed_timings``).
2. End attempts whose assignment leases expired. Their jobs are queued again, or end according to
   their retry budget. End gangs of which an assignment lost the others without a known cause.
3. Quarantine nodes that fail several jobs for reasons of their own.
4. Stop jobs that exceed their timeout.
5. Seal the streams of ended attempts, opened or not: nothing more can be stored for them. Their
   jobs may be placed again only afterwards.
6. Load the queue and the nodes, call ``domain.scheduling.decide``, and write each attempt in its
   own transaction; notify its nodes after the commit.
7. Write reason and queue position of the waiting jobs. A job whose spec only a newer version can
   read waits.
8. Notify nodes again about unclaimed assignments: the first notification may be lost.
9. At intervals, delete points and lines beyond their retention.
10. Add the use of released devices to the ledger.
11. Release the scheduler lease.

The scheduler lease is held for a limited time. A cycle may run twice, or on two schedulers at
once: each write is guarded by its precondition, and the loser drops its result. A cycle stops after
half of the time and requests another. Each write also checks that this scheduler still holds the
lease of step 1. A database restored meanwhile has another holder, so the cycle cannot declare
assignments lost that a new step 1 would spare.

Not here: steps 2 to 10 (``scheduler.cycle``), the schedule of cycles (``scheduler.loop``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.orm import Session

from lockstep.broker.messages import Notifier
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.timings import Timings
from lockstep.scheduler.cycle import Cycle, log
from lockstep.scheduler.remembered import Remembered
from lockstep.scheduler.report import CycleReport
from lockstep.storage.control import agreed_timings, scheduler_lease, scheduling
from lockstep.storage.db.database import Database

HOLD_SECONDS: Final = 10.0
"""Duration of the scheduler lease: a dead scheduler blocks the others for at most this long."""
WORK_SECONDS: Final = HOLD_SECONDS / 2
"""Time budget of one cycle; the rest is left to the next."""


def run_cycle(
    database: Database,
    notifier: Notifier,
    timings: Timings,
    *,
    owner: str,
    woken: bool = False,
    renumber: bool = True,
    expires: bool = True,
    remembered: Remembered | None = None,
    store_timings: bool = False,
    stopping: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> CycleReport:
    """Run one reconcile cycle.

    Parameters
    ----------
    database : Database
    notifier : Notifier
    timings : Timings
        Of this scheduler's last cycle, or of its settings.
    owner : str
        Unique name of this scheduler.
    woken : bool
        True if a notification requested this cycle. If another scheduler holds the lease, another
        cycle must follow.
    renumber : bool
        True to write also positions that only moved. Each placement moves all waiting jobs, and
        thousands of rows would be written for each start; a job without a position gets one in any
        case.
    expires : bool
        True to delete points and lines beyond their retention, and to compare all waits with their
        maximum.
    remembered : Remembered, optional
        Caches of earlier cycles.
    store_timings : bool
        True to store ``timings`` for all programs; False to follow the stored ones.
    stopping : callable
        Polled between two units of work; True ends the cycle early.
    clock : callable
        Monotonic seconds, for the cycle's own time.

    Raises
    ------
    LockstepError
        ``unavailable`` if a database does not answer. Earlier writes are kept.
    """
    with database.jobs() as session:
        lease = scheduler_lease.take(session, owner, ttl_seconds=HOLD_SECONDS)
        if lease is None and woken:
            scheduler_lease.mark_dirty(session)
        restored = lease is not None and scheduler_lease.was_restored(session)
        if lease is not None:
            timings = _agreed(session, timings, store_timings=store_timings or restored)
        # The clock may have gone forward and back between two cycles: then only the waits show it.
        if lease is not None and (expires or scheduler_lease.was_set_back(session)):
            brought = scheduling.bring_back(session, timings)
            if brought:
                log.warning(
                    "waits beyond their maximum start again: the database's clock was set back",
                    rows=brought,
                )
        spared = 0
        if lease is not None and (
            restored or scheduler_lease.gap_seconds(session) > timings.outage_seconds
        ):
            spared = scheduling.spare(session, lease_seconds=timings.lease_seconds)
    if lease is None:
        return CycleReport()
    _warn_of_outage(timings, spared, restored=restored)
    cycle = Cycle(
        database,
        notifier,
        timings,
        stopping,
        writing=lambda: _under_lease(database, owner, lease),
        renumber=renumber,
        expires=expires,
        remembered=remembered or Remembered(),
        ends_at=clock() + WORK_SECONDS,
        clock=clock,
    )
    cycle.report = CycleReport(held=True, timings=timings, spared=spared)
    try:
        cycle.run()
    finally:
        with database.jobs() as session:
            cycle.report.again |= scheduler_lease.give_back(session, owner, lease)
    return cycle.report


def _agreed(session: Session, timings: Timings, *, store_timings: bool) -> Timings:
    """Return the timings of this cycle, after storing them if this scheduler decides them."""
    stored = agreed_timings.read(session, timings)
    if not store_timings:
        if stored != timings:
            log.warning(
                "another scheduler has changed the timings: this one follows",
                **stored.changes(timings),
            )
        return stored
    if stored != timings:
        log.warning("the timings of all programs change", **timings.changes(stored))
    agreed_timings.store(session, timings)
    return timings


def _warn_of_outage(timings: Timings, spared: int, *, restored: bool) -> None:
    """Log that leases were extended, if they were, and the reason."""
    if restored:
        log.warning(
            "the jobs database was restored from a backup: all leases are extended, and no job "
            "starts for a while",
            assignments=spared,
            seconds=timings.replace_after_seconds,
        )
    elif spared:
        log.warning(
            "the service was down; expired leases are extended instead of declared lost",
            assignments=spared,
        )


@contextmanager
def _under_lease(database: Database, owner: str, lease: float) -> Iterator[Session]:
    """A write transaction that requires this cycle's lease of the scheduler.

    Raises
    ------
    LockstepError
        ``unavailable`` without it. The next cycle reads everything again.
    """
    with database.jobs() as session:
        if not scheduler_lease.holds(session, owner, lease):
            raise LockstepError(
                ErrorCode.UNAVAILABLE,
                "the lease of this reconcile cycle is gone: a backup was restored, or another "
                "scheduler took over",
                next_step="Nothing to do: the next cycle reads the database again.",
            )
        yield session
