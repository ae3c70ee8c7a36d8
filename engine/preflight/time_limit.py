"""Time limit of a call of the user's code on the main thread.

Not here: what is called (``engine.preflight.fast_forward``).
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TooLongError(BaseException):
    """A call took longer than its limit. No handler of the user's ``Exception`` takes it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise in the context after some seconds, by a timer of the process.

    Loops and sleeps of Python are interrupted, one long operation of torch only at its end. Other
    threads than the main one have no limit. A timer that ran before continues.

    Raises
    ------
    TooLongError
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_: int, __: FrameType | None) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, end)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    began = time.monotonic()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            rest = max(0.001, left - (time.monotonic() - began))
            signal.setitimer(signal.ITIMER_REAL, rest, interval)
