"""Thread that uploads one stream of an attempt until the stream ends.

Each attempt has several: metrics, logs, events and others. They are separate from the thread that
watches the attempt, because each may wait for the series database or the store, while stops and
deaths must be detected.

Not here: the data and its offsets (``worker.upload.file_uploader``,
``worker.upload.events.event_uploader``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from lockstep.system.files import BROKEN

log = structlog.get_logger(__name__)

BACKOFF_SECONDS_MAX = 5.0
"""Longest pause after a failure: a database that is back is noticed this soon."""

BROKEN_TRIES = 5
"""Failures in a row after which the rest on a disk that fails is given up."""


class UploadLoop:
    """Call ``step(last)`` repeatedly.

    ``step`` returns whether another one must follow at once. ``last`` is True once the writer is
    gone; the stream has ended when no other step must follow then. Exceptions are logged and the
    step is retried: it must leave its offset unchanged. After several in a row of a disk that fails
    the stream ends without the rest if it is last and ``gives_up`` returns that the node's disk is
    the one: nothing on it can be waited for.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[bool], bool],
        *,
        pause_seconds: float,
        gives_up: Callable[[], bool] = lambda: False,
    ):
        self._name = name
        self._gives_up = gives_up
        self.gave_up = False
        """True if it ended without the rest."""
        self._step = step
        self._pause_seconds = pause_seconds
        self._wake = threading.Event()
        self._finishing = False
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hurry(self) -> None:
        """Step now rather than after the pause."""
        self._wake.set()

    def finish(self) -> None:
        """Upload the rest after the writer's end, then end."""
        self._finishing = True
        self._wake.set()

    def stop(self) -> None:
        """End after the step that runs now, whatever is left."""
        self._stopped = True
        self._wake.set()

    def ended(self) -> bool:
        return not self._thread.is_alive()

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the end; False if it did not come in time."""
        self._thread.join(timeout_seconds)
        return self.ended()

    def _run(self) -> None:
        failures = 0
        while not self._stopped:
            last = self._finishing
            try:
                must_follow = self._step(last)
            except Exception as error:  # noqa: BLE001 - whatever is away or wrong, the stream is kept and tried again
                failures += 1
                log.warning(
                    "upload failed", stream=self._name, failures=failures, error=repr(error)
                )
                if last and failures >= BROKEN_TRIES and _is_broken(error) and self._gives_up():
                    log.warning("upload given up: the node's disk fails", stream=self._name)
                    self.gave_up = True
                    return
                self._wake.wait(
                    min(BACKOFF_SECONDS_MAX, self._pause_seconds * 2.0 ** min(failures, 10))
                )
                self._wake.clear()
                continue
            failures = 0
            if must_follow:
                continue
            if last:
                return
            self._wake.wait(self._pause_seconds)
            self._wake.clear()


def _is_broken(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in BROKEN
