"""Reconcile loop: one cycle every few seconds, and at once after a notification.

Runs in its own thread and needs only the database: cycles continue while the broker is away.

Not here: the cycle (``scheduler.reconcile``), and the receipt of notifications (``scheduler.service``).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from lockstep.domain.errors import LockstepError
from lockstep.scheduler.report import Report

BREATH_SECONDS: Final = 0.05
"""At least so long from the end of a pass to the next: a storm of bells is answered together, and writers on SQLite get in."""

log = structlog.get_logger("scheduler")


class PassLoop:
    """Makes passes until it is asked to stop.

    Parameters
    ----------
    make_pass : callable
        Given whether a bell asked for it, makes one pass.
    pass_seconds : float
        The longest wait between two.
    """

    def __init__(self, make_pass: Callable[[bool], Report], *, pass_seconds: float) -> None:
        self._make_pass = make_pass
        self._pass_seconds = pass_seconds
        # Not a Condition: a signal's handler may put something here, whatever lock the thread it interrupted holds.
        self._inbox: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._stopping = False
        self._away = False
        self._thread = threading.Thread(target=self._run, name="passes", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ring(self) -> None:
        """Make a pass now. Never blocks."""
        self._inbox.put(None)

    def ask_stop(self) -> None:
        """End after the piece of work that is being done. Safe in a signal's handler."""
        self._stopping = True
        self._inbox.put(None)

    def join(self) -> None:
        """Wait for the end, if it ever began."""
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def stopping(self) -> bool:
        return self._stopping

    def _run(self) -> None:
        rang = False
        while not self._stopping:
            again = self._pass(rang)
            time.sleep(min(BREATH_SECONDS, self._pass_seconds))
            rang = self._drain(0.0 if again else self._pass_seconds)

    def _pass(self, rang: bool) -> bool:
        try:
            report = self._make_pass(rang)
        except LockstepError as error:
            # Expected while the database restarts: once per outage, not once per pass.
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
        """Wait for a bell; all that have rung by then are answered by one pass."""
        rang = False
        while True:
            try:
                self._inbox.get(timeout=0.0 if rang else seconds)
            except queue.Empty:
                return rang
            rang = True
