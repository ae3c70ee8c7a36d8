"""A timeout for checks that may hang, such as those of a network file system.

Not here: the checks (``api.readiness``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

PATIENCE_SECONDS: Final = 1.0
REMEMBER_SECONDS: Final = 15.0
"""Minimum interval of two checks: a check of the store writes a file or sends an object."""


class BoundedCheck:
    """Cache of a check's last result, shared by all callers. At most one check runs at a time.

    Parameters
    ----------
    check : callable
        Returns a description of the problem, empty without one. It may raise, and it may hang.
    patience_seconds : float
        Limit of a caller's wait, counted from the start of the check.
    """

    def __init__(
        self,
        check: Callable[[], str],
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ):
        self._check = check
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        self._running: Future[str] | None = None
        self._started_at = 0.0

    def ask(self) -> str:
        """Return the problem that the check found, or its timeout; empty without a problem."""
        with self._lock:
            running = self._running
            if running is None or (
                running.done() and time.monotonic() - self._started_at > REMEMBER_SECONDS
            ):
                running = self._running = Future()
                self._started_at = time.monotonic()
                # A daemon thread: a check that hangs must not prevent the process from exiting.
                threading.Thread(
                    target=self._run, args=(running,), name="check", daemon=True
                ).start()
            waited = time.monotonic() - self._started_at
        try:
            return running.result(timeout=max(0.0, self._patience_seconds - waited))
        except TimeoutError:
            return f"has not answered for {time.monotonic() - self._started_at:.0f} s"

    def _run(self, running: Future[str]) -> None:
        try:
            running.set_result(self._check())
        except Exception as error:  # noqa: BLE001 -- drivers of remote stores raise errors of their own
            running.set_result(f"{type(error).__name__}: {error}")
