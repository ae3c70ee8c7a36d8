"""Largest micro-batch by a forecast, for ``micro_size: auto`` of a pipeline.

The forecast runs in a process of its own: it calls the user's code with tensors without values.

Not here: the computation (``engine.memory.job_forecast``), the choice (``engine.memory.auto``).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lockstep.domain.kinds.devices import HIDDEN
from lockstep.domain.spec.train import Train
from lockstep.domain.training.predicted import (
    DEADLINE_SECONDS,
    ForecastAnswer,
    ForecastRequest,
    answer_of,
)
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
    found = ranks.from_first(_computed(request) if ranks.first else None)
    assert found is not None
    answer = ForecastAnswer.model_validate_json(found)
    if answer.micro_batch_size_max is None:
        raise BadSpecError(
            f"micro_size: auto needs a memory forecast with pipeline {train.parallel.stages}, and "
            f"there is none: {answer.why}; set the samples of a micro-batch, such as micro_size: 8"
        )
    return answer.micro_batch_size_max


def _computed(request: ForecastRequest) -> str:
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "lockstep.engine.memory.job_forecast", str(os.getpid())],
            input=request.model_dump_json().encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | HIDDEN | {"OMP_NUM_THREADS": "1"},
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        answer = answer_of(request, ended.stdout, ended.returncode)
    except (OSError, subprocess.TimeoutExpired) as error:
        answer = ForecastAnswer(why=f"its process failed: {error}")
    return answer.model_dump_json()
