"""How many requests one token may make: a bucket each, in this process's memory.

A bucket holds a window's worth of requests and is refilled evenly, so a burst is served at once and a loop that ran away is
slowed down to the window's rate, while everybody else is served as before. With several processes behind a proxy each
counts by itself.

Answers say how the caller stands (``RateLimit-Policy`` and ``RateLimit`` as in draft-ietf-httpapi-ratelimit-headers-10), so
that it can slow down by itself before it is refused.

Not here: whom a request is charged to (``api.parts``), and the client's waiting (``client.transport``).
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from lockstep.domain.errors import ErrorCode, LockstepError

BUCKETS_MAX: Final = 10_000
"""Kept at once, the last used. One that is forgotten begins full again, which takes that many other callers."""
NAME: Final = "requests"
_ROUNDING_SECONDS: Final = 1e-6


class Standing(NamedTuple):
    """How a caller stands after a request."""

    wait_seconds: int
    """0 if the request may go on; otherwise it is refused, was not charged, and may come back after that."""
    remaining: int
    """Requests that the caller may make at once."""
    full_seconds: int
    """Until its bucket is full again if it makes none."""


class Quotas:
    """The buckets of one application. Threads share it.

    Parameters
    ----------
    requests : int
        That a caller may make in a window; 0 counts nothing and refuses nobody.
    window_seconds : int
    clock : callable
        Monotonic seconds.
    """

    def __init__(self, requests: int, window_seconds: int, clock: Callable[[], float] = time.monotonic):
        self._requests = requests
        self._window_seconds = window_seconds
        self._clock = clock
        self._empty_at: OrderedDict[bytes, float] = OrderedDict()
        """Of each caller since when its bucket has been filling, from empty: all that needs to be known of it."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._empty_at)

    def take(self, caller: bytes) -> Standing | None:
        """Charge a request to ``caller``; None where nobody counts."""
        if not self._requests:
            return None
        each = self._window_seconds / self._requests
        with self._lock:
            at = self._clock()
            # A bucket that began to fill a window ago is full; it gets no fuller.
            before = max(self._empty_at.get(caller, -math.inf), at - self._window_seconds)
            missing_seconds = before + each - at
            empty_at = before + each if missing_seconds <= _ROUNDING_SECONDS else before
            self._empty_at[caller] = empty_at
            self._empty_at.move_to_end(caller)
            while len(self._empty_at) > BUCKETS_MAX:
                self._empty_at.popitem(last=False)
        return Standing(
            wait_seconds=max(1, math.ceil(missing_seconds - _ROUNDING_SECONDS)) if empty_at == before else 0,
            remaining=max(0, int((at - empty_at + _ROUNDING_SECONDS) / each)),
            full_seconds=math.ceil(empty_at + self._window_seconds - at - _ROUNDING_SECONDS),
        )

    def headers(self, standing: Standing) -> dict[str, str]:
        """What an answer says of it."""
        return {
            "RateLimit-Policy": f'"{NAME}";q={self._requests};w={self._window_seconds}',
            "RateLimit": f'"{NAME}";r={standing.remaining};t={standing.full_seconds}',
        }

    def refusal(self, standing: Standing) -> LockstepError:
        """What a caller is told whose request is refused."""
        seconds = standing.wait_seconds
        return LockstepError(
            ErrorCode.TOO_MANY_REQUESTS,
            f"more than {self._requests} requests in {self._window_seconds} s; this one was not looked at",
            next_step=f"wait {seconds} s; then ask less often, or follow a stream in place of polling",
            retry_after_seconds=seconds,
        )
