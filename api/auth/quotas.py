"""Rate limit per token: one bucket for each caller, in the memory of this process.

A bucket holds the requests of one window and is refilled at a constant rate. A burst is served
immediately, a runaway client is limited to the rate of the window, and other clients are not
affected. Processes behind a proxy count separately.

Responses carry the state of the quota (``RateLimit-Policy`` and ``RateLimit`` as in
draft-ietf-httpapi-ratelimit-headers-10), which lets clients slow down before they are rejected.

Not here: the caller that a request is charged to (``api.parts``), the client's retries
(``client.transport``).
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
"""Limit of stored buckets. The least recently used one is evicted, and starts full again."""
NAME: Final = "requests"
_ROUNDING_SECONDS: Final = 1e-6


class QuotaState(NamedTuple):
    """State of a caller's quota after a request."""

    wait_seconds: int
    """0 if the request is accepted. Otherwise it is rejected and not charged, and may be retried
    after this time."""
    remaining: int
    """Requests that the caller may send immediately."""
    full_seconds: int
    """Seconds until the bucket is full, without further requests."""


class Quotas:
    """Buckets of one application. Thread-safe.

    Parameters
    ----------
    requests : int
        Requests of a caller per window; 0 disables the limit.
    window_seconds : int
    clock : callable
        Monotonic seconds.
    """

    def __init__(
        self, requests: int, window_seconds: int, clock: Callable[[], float] = time.monotonic
    ):
        self._requests = requests
        self._window_seconds = window_seconds
        self._clock = clock
        self._empty_at: OrderedDict[bytes, float] = OrderedDict()
        """Time at which each caller's bucket was last empty, assuming a constant refill. It is the
        whole state of a bucket."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._empty_at)

    def take(self, caller: bytes) -> QuotaState | None:
        """Charge a request to ``caller``; return None if the limit is disabled."""
        if not self._requests:
            return None
        each = self._window_seconds / self._requests
        with self._lock:
            at = self._clock()
            # A bucket that has been refilled for a window is full.
            before = max(self._empty_at.get(caller, -math.inf), at - self._window_seconds)
            missing_seconds = before + each - at
            empty_at = before + each if missing_seconds <= _ROUNDING_SECONDS else before
            self._empty_at[caller] = empty_at
            self._empty_at.move_to_end(caller)
            while len(self._empty_at) > BUCKETS_MAX:
                self._empty_at.popitem(last=False)
        return QuotaState(
            wait_seconds=max(1, math.ceil(missing_seconds - _ROUNDING_SECONDS))
            if empty_at == before
            else 0,
            remaining=max(0, int((at - empty_at + _ROUNDING_SECONDS) / each)),
            full_seconds=math.ceil(empty_at + self._window_seconds - at - _ROUNDING_SECONDS),
        )

    def headers(self, standing: QuotaState) -> dict[str, str]:
        """Return the rate limit headers of a response."""
        return {
            "RateLimit-Policy": f'"{NAME}";q={self._requests};w={self._window_seconds}',
            "RateLimit": f'"{NAME}";r={standing.remaining};t={standing.full_seconds}',
        }

    def refusal(self, standing: QuotaState) -> LockstepError:
        """Return the error for a rejected request."""
        seconds = standing.wait_seconds
        return LockstepError(
            ErrorCode.TOO_MANY_REQUESTS,
            f"more than {self._requests} requests in {self._window_seconds} s; this request was "
            f"not processed",
            next_step=(
                f"wait {seconds} s, then send fewer requests, or use a stream instead of polling"
            ),
            retry_after_seconds=seconds,
        )
