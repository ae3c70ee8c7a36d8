"""A value that is read again once it is old.

Not here: a value per key with a limit of size (``api.http.response_cache``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """The last value of a slow read, for all threads. One of them reads, and the others wait.

    Parameters
    ----------
    clock : callable, optional
        Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last: tuple[float, T] | None = None

    def get(self, read: Callable[[], T], *, seconds: float) -> T:
        """Return the last value, or a new one if that is older than ``seconds``."""
        with self._lock:
            if self._last is None or self._clock() - self._last[0] > seconds:
                value = read()
                self._last = self._clock(), value
            return self._last[1]
