"""Reconcile loop: one cycle every few seconds, and at once after a notification.

Runs in its own thread and needs only the database: cycles continue while the broker is away.

Not here: the cycle (``scheduler.reconcile``), and the receipt of notifications
(``scheduler.service``).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from lockstep.domain.errors import LockstepError
from lockstep.scheduler.report import CycleReport

BREATH_SECONDS: Final = 0.05
"""Least time from the end of a cycle to the next: many wake-ups are handled together, and
writers on SQLite get in."""

log = structlog.get_logger("scheduler")


class ReconcileLoop:
    """Runs reconcile cycles until it is stopped.

    Parameters
    ----------
    run_one : callable
        Runs one cycle. Its argument is True after a notification.
    cycle_seconds : float
        Longest wait between two cycles. ``run_one`` may change it.
    report : callable
        Called in each iteration, as a sign of life.
    """

    def __init__(
        self,
        run_one: Callable[[bool], CycleReport],
        *,
        cycle_seconds: float,
        report: Callable[[], None] = lambda: None,
    ) -> None:
        self._report = report
        self._run_one = run_one
        self.cycle_seconds = cycle_seconds
        # Not a Condition: a signal's handler may put something here, whatever lock the thread it
        # interrupted holds.
        self._inbox: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._stopping = False
        self._away = False
        self._thread = threading.Thread(target=self._run, name="cycles", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def notify(self) -> None:
        """Run a cycle now. Never blocks."""
        self._inbox.put(None)

    def request_stop(self) -> None:
        """End after the piece of work that is being done. Safe in a signal's handler."""
        self._stopping = True
        self._inbox.put(None)

    def join(self) -> None:
        """Wait for the end, if it was started."""
        if self._thread.ident is not None:
            self._thread.join()

    def runs(self) -> bool:
        """Return whether the loop's thread is alive."""
        return self._thread.is_alive()

    @property
    def stopping(self) -> bool:
        return self._stopping

    def _run(self) -> None:
        woken = False
        while not self._stopping:
            self._report()
            again = self._cycle(woken)
            time.sleep(min(BREATH_SECONDS, self.cycle_seconds))
            woken = self._drain(0.0 if again else self.cycle_seconds)

    def _cycle(self, woken: bool) -> bool:
        try:
            report = self._run_one(woken)
        except LockstepError as error:
            # Expected while the database restarts: once per outage, not once per cycle.
            if not self._away:
                log.warning("no reconcile cycles until the database answers", error=error.message)
            self._away = True
            return False
        except Exception:
            log.exception("a reconcile cycle failed; the next one runs at its regular time")
            return False
        if self._away:
            log.info("the database answers again")
        self._away = False
        return report.again

    def _drain(self, seconds: float) -> bool:
        """Wait for a notification; one cycle answers all that have arrived."""
        woken = False
        while True:
            try:
                self._inbox.get(timeout=0.0 if woken else seconds)
            except queue.Empty:
                return woken
            woken = True
