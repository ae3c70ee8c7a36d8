"""The memory forecast of a job that has not run: the question, the answer, and how a plan shows it.

Not here: what a forecast consists of (``domain.memory``), how it is found out (``engine.memory.ahead``).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from domain.described import Described
from domain.memory import Bytes, MemoryForecast, in_words
from domain.spec import Train


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


class PlannedMemory(Described, BaseModel):
    """Memory that each rank of a planned job would need, and what its device has."""

    model_config = ConfigDict(frozen=True)

    state: Literal["known", "computing", "unknown"]
    """``computing``: ask again in a moment."""
    source: Literal["task", "code", "history"] | None = None
    """``task``: computed from the built-in task. ``code``: computed from the code of your own task. ``history``: what an
    earlier job with the same task and size had. Null where there is no forecast."""
    job: str | None = None
    """The earlier job."""
    measured_bytes: Bytes | None = None
    """What rank 0 of the earlier job took, where that was measured."""
    forecast: MemoryForecast | None = None
    why: str | None = None
    """Why there is no forecast."""
    micro_batch_size: int | None = None
    """Samples in one forward and backward that the forecast is for; with ``micro_size: auto`` the largest that fits."""
    micro_batch_size_max: int | None = None
    """Largest of the sizes that ``micro_size: auto`` tries which fits; 0 if none does; null where that is not known."""
    device_type: str | None = None
    """The type with the least memory of those that the job may get; null where no node is registered."""
    capacity_bytes: Bytes | None = None
    """Memory of one such device; of a CPU slot, its part of the host's. Null where that is not known."""
    headroom: float = 0.0
    """Fraction of it that stays free for what a forecast does not count."""

    def sentence(self) -> str:
        """Say what a rank needs and where that is from."""
        if self.state == "computing":
            return "the forecast is being computed; plan again in a few seconds"
        if self.forecast is None:
            return f"no forecast: {self.why}"
        samples = f" with micro-batches of {self.micro_batch_size}" if self.micro_batch_size else ""
        return f"{self.forecast.sentence()}{samples}, {self._source()}"

    def device_sentence(self) -> str | None:
        """Say what the device has and allows; None where its memory is not known."""
        if self.capacity_bytes is None:
            return None
        has = f"{in_words(self.capacity_bytes)} on each {self.device_type}"
        most = self.micro_batch_size_max
        if most is None:
            return has
        if most == 0:
            return f"{has}: not a single sample fits"
        only = "only " if self.micro_batch_size is not None and self.micro_batch_size > most else ""
        return f"{has}: {only}micro-batches of up to {most} fit"

    def _source(self) -> str:
        if self.source == "history":
            took = f", which took {in_words(self.measured_bytes)}" if self.measured_bytes is not None else ""
            return f"as forecast for job {self.job}{took}"
        return "computed from your code" if self.source == "code" else "computed from the task"
