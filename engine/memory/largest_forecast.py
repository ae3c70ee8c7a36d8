"""Largest micro-batch by a forecast, for ``micro_size: auto`` of a pipeline.

The forecast runs in a process of its own: it calls the user's code with tensors without values.

Not here: its process (``domain.training.forecast_process``), the choice (``engine.memory.auto``).
"""

from __future__ import annotations

from pathlib import Path

from lockstep.domain.spec.train import Train
from lockstep.domain.training.forecast_process import ForecastProcess
from lockstep.domain.training.predicted import ForecastAnswer, ForecastRequest
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.runtime.ranks import Ranks


def largest_forecast(train: Train, code: Path | None, ranks: Ranks, limit_bytes: float) -> int:
    """Return the largest micro-batch that needs at most so much memory; 0 if none does.

    All ranks must call this; the first one computes.

    Raises
    ------
    EngineError
        ``bad_spec``: there is no forecast.
    """
    request = ForecastRequest(
        train=train,
        world_size=ranks.world_size,
        available_bytes=max(0, int(limit_bytes)),
        code=None if code is None else str(code),
    )
    found = ranks.from_first(ForecastProcess()(request).model_dump_json() if ranks.first else None)
    assert found is not None
    answer = ForecastAnswer.model_validate_json(found)
    if answer.micro_batch_size_max is None:
        raise BadSpecError(
            f"micro_size: auto needs a memory forecast with pipeline {train.parallel.stages}, and "
            f"there is none: {answer.why}; set the samples of a micro-batch, such as micro_size: 8"
        )
    return answer.micro_batch_size_max
