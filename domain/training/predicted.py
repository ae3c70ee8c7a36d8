"""Memory forecast of a job that has not run: request and answer of the process.

Not here: the contents of a forecast and their display (``domain.training.memory``), the process
(``domain.training.forecast_process``).
"""

from __future__ import annotations

import signal
from typing import Annotated, Final

from pydantic import BaseModel, Field, ValidationError

from lockstep.domain.spec.train import Train
from lockstep.domain.training.memory import Bytes, MemoryForecast

DEADLINE_SECONDS: Final = 600.0
"""The process is killed after this time. A busy machine and its low priority make a forecast of
some seconds slow; :attr:`ForecastRequest.cpu_limit_seconds` ends one that computes too long."""


class ForecastRequest(BaseModel, frozen=True):
    """Request to the process that computes a forecast before a run: one JSON document."""

    train: Train
    world_size: Annotated[int, Field(ge=1)]
    available_bytes: Bytes | None = None
    """Memory of its device that one rank may use; None if unknown."""
    code: str | None = None
    """Folder of the job's code; None for a built-in task."""
    memory_limit_bytes: Bytes | None = None
    """Memory limit of the process itself; None sets no limit."""
    cpu_limit_seconds: Annotated[int, Field(ge=1)] | None = None
    """Time on a processor, over all threads, after which the process is ended; None sets no
    limit."""


class ForecastAnswer(BaseModel, frozen=True):
    """Answer of that process: one JSON document."""

    forecast: MemoryForecast | None = None
    why: str | None = None
    """Reason for a missing forecast."""
    micro_batch_size: int | None = None
    """Samples in one forward and backward that the forecast is for."""
    micro_batch_size_max: int | None = None
    """Largest of the sizes that ``micro_size: auto`` tries which fits; 0 if none does; null where
    that is not known."""


def answer_of(request: ForecastRequest, output: bytes, code: int) -> ForecastAnswer:
    """Return the answer of a process that ended.

    Parameters
    ----------
    request : ForecastRequest
    output : bytes
        The process's standard output.
    code : int
        The exit code; negative for a signal, as ``subprocess`` gives it.
    """
    if code == -signal.SIGXCPU:
        return ForecastAnswer(why=f"it took more than {request.cpu_limit_seconds} s of CPU time")
    try:
        return ForecastAnswer.model_validate_json(output)
    except ValidationError:
        return ForecastAnswer(why=f"its process exited with code {code} and without a result")
