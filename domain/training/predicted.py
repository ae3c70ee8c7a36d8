"""The memory forecast of a job that has not run: the request to the process that computes it, and its answer.

Not here: what a forecast consists of and how a plan shows it (``domain.training.memory``), the process (``engine.memory.job_forecast``).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from lockstep.domain.spec.job import Train
from lockstep.domain.training.memory import Bytes, MemoryForecast


class ForecastRequest(BaseModel):
    """What the process that works out a forecast before a run is asked for: one JSON document."""

    model_config = ConfigDict(frozen=True)

    train: Train
    world_size: Annotated[int, Field(ge=1)]
    available_bytes: Bytes | None = None
    """What one rank may use of its device; None where that is not known."""
    code: str | None = None
    """Folder of the job's code; None for a built-in task."""
    memory_limit_bytes: Bytes | None = None
    """What the process itself may take; None sets no limit."""


class ForecastAnswer(BaseModel):
    """What that process answers: one JSON document."""

    model_config = ConfigDict(frozen=True)

    forecast: MemoryForecast | None = None
    why: str | None = None
    """Why there is no forecast."""
    micro_batch_size: int | None = None
    """Samples in one forward and backward that the forecast is for."""
    micro_batch_size_max: int | None = None
    """Largest of the sizes that ``micro_size: auto`` tries which fits; 0 if none does; null where that is not known."""
