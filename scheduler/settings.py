"""The scheduler's settings, read from the environment once, at its start.

Not here: the waits themselves (``domain.life.timings``).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lockstep.broker.settings import BrokerSettings
from lockstep.domain.life.timings import Timings
from lockstep.storage.db.settings import StorageSettings


class SchedulerSettings(StorageSettings, BrokerSettings):
    """``LOCKSTEP_…`` of one scheduler."""

    timings_scale: Annotated[float, Field(gt=0)] = 1.0
    """Multiplies every wait of ``domain.life.timings``; tests use values below 1."""
    log_format: Literal["console", "json"] = "console"

    @property
    def timings(self) -> Timings:
        return Timings().scaled(self.timings_scale)
