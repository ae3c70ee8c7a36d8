"""Cache of the values that were used last, with a limit of bytes.

Not here: responses (``api.http.response_cache``), views of jobs (``api.jobs.known_views``).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class RecentlyUsed(Generic[K, V]):
    """Values by key. The least recently used are evicted first. Thread-safe.

    Parameters
    ----------
    bytes_max : int
        Limit of all values together.
    """

    def __init__(self, bytes_max: int):
        self._bytes_max = bytes_max
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """Return the kept value, or None."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def keep(self, key: K, value: V, size: int) -> None:
        """Keep a value of ``size`` bytes, unless it is larger than a quarter of the limit."""
        if size > self._bytes_max // 4:
            return
        with self._lock:
            _, before = self._values.pop(key, (None, 0))
            self._bytes += size - before
            self._values[key] = value, size
            while self._bytes > self._bytes_max:
                _, (_, oldest) = self._values.popitem(last=False)
                self._bytes -= oldest

    def forget(self) -> None:
        """Remove every value."""
        with self._lock:
            self._values.clear()
            self._bytes = 0
