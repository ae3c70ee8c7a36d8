"""The average use of devices, read from the rows now and then.

Not here: its statement (``storage.control.usage``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from sqlalchemy.orm import Session

from lockstep.storage.control import usage

AVERAGE_SECONDS: Final = 30.0
"""Age of an average that is read again. It has a half-life of days, and reads thousands of rows."""


class Averages:
    """The average use of devices, as :func:`lockstep.storage.control.usage.average` reads it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._found: tuple[float, float, Mapping[tuple[str, str], float]] | None = None

    def read(
        self, session: Session, now: float, half_life_seconds: float
    ) -> Mapping[tuple[str, str], float]:
        """Return the average of this moment, or of a short time before."""
        at = self._clock()
        if self._found is not None:
            read_at, half_life, found = self._found
            if half_life == half_life_seconds and at - read_at < AVERAGE_SECONDS:
                return found
        found = usage.average(session, now, half_life_seconds)
        self._found = at, half_life_seconds, found
        return found
