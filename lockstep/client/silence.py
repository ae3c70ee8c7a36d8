"""A line for the user while a server accepts a request and does not answer it.

Not here: the time limit of a request and its retries, which are reported, too
(``client.transport``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

SILENCE_SECONDS: Final = 5.0
"""Most answers take milliseconds. A submit waits up to 30 s for a locked database."""


@contextmanager
def reported(url: str, request: str, say: Callable[[str], None]) -> Iterator[None]:
    """Call ``say`` once, from another thread, if the body takes longer than ``SILENCE_SECONDS``."""
    line = f"waiting for {url}: no answer to {request} for {SILENCE_SECONDS:g} s"
    timer = threading.Timer(SILENCE_SECONDS, say, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
