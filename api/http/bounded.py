"""A check that may hang, such as one of a network file system, asked for with a limit of time.

Not here: which checks there are (``api.readiness``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

PATIENCE_SECONDS: Final = 1.0
REMEMBER_SECONDS: Final = 15.0
"""A check of the store writes a file, or sends an object: not more often than this."""


class BoundedCheck:
    """The last answer of a check, shared by all callers. At most one check runs at a time.

    Parameters
    ----------
    check : callable
        Returns the trouble that it found, empty when there is none. It may raise, and it may hang.
    patience_seconds : float
        Limit of a caller's wait, counted from the start of the check.
    clock : callable
        Monotonic seconds.
    """

    def __init__(
        self,
        check: Callable[[], str],
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._check = check
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._running: Future[str] | None = None
        self._started_at = 0.0

    def ask(self) -> str:
        """Return the trouble that the check found, or that it takes too long; empty when there is none."""
        with self._lock:
            running = self._running
            if running is None or (running.done() and self._clock() - self._started_at > REMEMBER_SECONDS):
                running = self._running = Future()
                self._started_at = self._clock()
                # A daemon: a check that hangs must not keep the service from ending.
                threading.Thread(target=self._run, args=(running,), name="check", daemon=True).start()
            waited = self._clock() - self._started_at
        try:
            return running.result(timeout=max(0.0, self._patience_seconds - waited))
        except TimeoutError:
            return f"does not answer for {self._clock() - self._started_at:.0f} s"

    def _run(self, running: Future[str]) -> None:
        try:
            running.set_result(self._check())
        except Exception as error:  # noqa: BLE001 -- drivers of remote stores raise errors of their own
            running.set_result(f"{type(error).__name__}: {error}")
