"""The scheduler as a program.

A Celery worker that receives notifications, beside the reconcile loop.

Not here: the reconcile cycle (``scheduler.reconcile``).
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from typing import Final

import structlog

from lockstep.broker.app import make_app
from lockstep.broker.consumer import consume
from lockstep.broker.messages import WakeScheduler
from lockstep.broker.publisher import Publisher
from lockstep.broker.queues import CONTROL
from lockstep.scheduler.deletions import StoreDeletions
from lockstep.scheduler.loop import ReconcileLoop
from lockstep.scheduler.reconcile import run_cycle
from lockstep.scheduler.remembered import Remembered
from lockstep.scheduler.report import CycleReport
from lockstep.scheduler.settings import SchedulerSettings
from lockstep.storage.db import schema
from lockstep.storage.db.database import Database
from lockstep.storage.objects.blobs import BlobStore
from lockstep.system.watchdog import Watchdog

log = structlog.get_logger("scheduler")

END_SECONDS: Final = 1.5
"""From SIGTERM to the end of the process, even if the broker is frozen."""
RENUMBER_SECONDS: Final = 1.0
"""Interval between updates of queue positions that only moved."""

EXPIRES_SECONDS: Final = 60.0
"""Interval between deletions of points and lines beyond their retention."""


class _Every:
    """Timer that is due once per interval."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._next_at = 0.0

    def due(self) -> bool:
        """Return whether it is due, and restart the interval if it is."""
        now = time.monotonic()
        if now < self._next_at:
            return False
        self._next_at = now + self._seconds
        return True


def run(settings: SchedulerSettings) -> None:
    """Run one scheduler until it is asked to end. Call from the main thread.

    Raises
    ------
    LockstepError
        If the databases have another schema than this program.
    """
    # One process may die and another get its pid: the rest makes the name its own.
    owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    timings, stored = settings.timings, False
    database = Database(settings.database_url, settings.series_url)
    schema.require_once_up(
        database, lambda why: log.warning("the schema version cannot be checked yet", error=why)
    )
    publisher = Publisher(settings.broker_url)
    remembered = Remembered()
    renumber, expires = _Every(RENUMBER_SECONDS), _Every(EXPIRES_SECONDS)

    def run_one(woken: bool) -> CycleReport:
        nonlocal timings, stored
        report = run_cycle(
            database,
            publisher,
            timings,
            owner=owner,
            woken=woken,
            renumber=renumber.due(),
            expires=expires.due(),
            remembered=remembered,
            store_timings=not stored,
            stopping=lambda: loop.stopping,
        )
        if report.timings is not None:
            timings, stored = report.timings, True
            loop.cycle_seconds = timings.cycle_seconds
        return report

    watchdog = Watchdog("reconcile loop")
    loop = ReconcileLoop(run_one, cycle_seconds=timings.cycle_seconds, report=watchdog.report)
    deletions = StoreDeletions(database, BlobStore(settings.store), every_seconds=EXPIRES_SECONDS)
    deletions.start()
    app = make_app(settings.broker_url, queue=CONTROL)
    app.task(name=WakeScheduler.task)(loop.notify)
    try:
        consume(
            app,
            loop,
            name=f"scheduler@{owner}",
            end_seconds=lambda: END_SECONDS,
            watchdog=watchdog,
        )
    finally:
        deletions.stop()
        publisher.close()
        database.close()
