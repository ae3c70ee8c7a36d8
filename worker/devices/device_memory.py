"""Wait for the return of a GPU's memory.

The driver frees it some moments after the last process has died.

A device that is leased again too early has less free memory than expected, and the next job runs
out of memory. The reference is the use before the launch, because other programs may use the
device, too.

Not here: the end of the processes (``worker.launch.sweeping``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import structlog

log = structlog.get_logger(__name__)

Used = Mapping[int, int]
"""Bytes in use, by the device's index."""

SLACK_BYTES = 64 * 2**20
"""Tolerance: other programs' use of a device varies."""
WAIT_SECONDS = 30.0
"""Time limit: afterwards another program holds the memory, and a longer wait would block the
device."""


class MemoryReclaim:
    """Wait of one attempt for the memory of its devices.

    Parameters
    ----------
    before : callable
        Returns the memory use before the launch; empty if unknown, which skips the wait.
    used : callable
        Returns the memory in use on some devices.
    """

    def __init__(self, before: Callable[[], Used], used: Callable[[Sequence[int]], Used]):
        self._before, self._used = before, used
        self._deadline: float | None = None

    def over(self) -> bool:
        """Return whether the devices may be released.

        Call it repeatedly, once no process is left.
        """
        before = self._before()
        if not before:
            return True
        if self._deadline is None:
            self._deadline = time.monotonic() + WAIT_SECONDS
        now = self._used(list(before))
        missing = {
            index: used - before[index]
            for index, used in now.items()
            if used > before[index] + SLACK_BYTES
        }
        if not missing:
            return True
        if time.monotonic() < self._deadline:
            return False
        log.warning(
            "memory of devices was not freed; the devices are released nevertheless",
            missing_bytes=missing,
        )
        return True
