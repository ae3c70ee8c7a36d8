"""The average use of devices, read from the rows now and then.

Not here: its statement (``storage.control.usage``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from sqlalchemy.orm import Session

from lockstep.storage.control import usage
from lockstep.system.recent import Recent

AVERAGE_SECONDS: Final = 30.0
"""Age of an average that is read again. It has a half-life of days, and reads thousands of rows."""


class Averages:
    """The average use of devices, as :func:`lockstep.storage.control.usage.average` reads it."""

    def __init__(self) -> None:
        self._recent: Recent[Mapping[tuple[str, str], float]] = Recent()

    def read(
        self, session: Session, now: float, half_life_seconds: float
    ) -> Mapping[tuple[str, str], float]:
        """Return the average of this moment, or of a short time before."""
        read = partial(usage.average, session, now, half_life_seconds)
        return self._recent.get(read, seconds=AVERAGE_SECONDS)
