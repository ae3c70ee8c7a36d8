"""Forecast before a run: reads one request from stdin, writes one answer to stdout, and ends.

    python -m lockstep.engine.memory.job_forecast PARENT < request.json > answer.json

The api starts it for built-in tasks, the command line for a user's own task (neither imports
torch), and a run for ``micro_size: auto`` of a pipeline. The sample of a built-in task is generated
from its arguments; no dataset and no weights are read. Any other task supplies its first sample.
The process ends with its parent.

Not here: the forecast (``engine.memory.forecast``), its start
(``domain.training.forecast_process``), the format of request and answer
(``domain.training.predicted``).
"""

from __future__ import annotations

import os
import resource
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

from lockstep.domain.spec.batch import ceil_div
from lockstep.domain.spec.train import Train
from lockstep.domain.training.predicted import ForecastAnswer, ForecastRequest
from lockstep.engine.data.fetching import die_with_parent, seeded_sample
from lockstep.engine.memory.forecast import forecast
from lockstep.engine.memory.forecast_process import be_quiet
from lockstep.engine.memory.sharing import NoForecastError
from lockstep.engine.memory.sizes import Trial, candidates, largest, within_bubble
from lockstep.engine.runtime.errors import describe
from lockstep.engine.task.builtin import BUILT_IN
from lockstep.engine.task.interface import Task
from lockstep.engine.task.loading import load_task

_WHY_CHARS_MAX: Final = 500


def main(parent: int) -> None:
    """Answer the one request on stdin."""
    with os.fdopen(os.dup(1), "w") as answers:
        die_with_parent(parent)
        be_quiet()
        request = ForecastRequest.model_validate_json(sys.stdin.buffer.read())
        if request.cpu_limit_seconds is not None:
            _limit(resource.RLIMIT_CPU, request.cpu_limit_seconds)
        if request.memory_limit_bytes is not None:
            _limit(resource.RLIMIT_DATA, request.memory_limit_bytes)
        answers.write(answer(request).model_dump_json())


def _limit(resource_kind: int, value: int) -> None:
    _, most = resource.getrlimit(resource_kind)
    resource.setrlimit(resource_kind, (value, most))


def answer(request: ForecastRequest) -> ForecastAnswer:
    """The forecast that is asked for, or why there is none."""
    try:
        return _answer(request)
    except NoForecastError as error:
        return ForecastAnswer(why=str(error)[:_WHY_CHARS_MAX])
    except Exception as error:  # noqa: BLE001 - a user's code runs here
        return ForecastAnswer(why=describe(error)[:_WHY_CHARS_MAX])


def _answer(request: ForecastRequest) -> ForecastAnswer:
    train = request.train
    if train.task == "hf_causal_lm":
        # The shape is what counts: no weights are read.
        train = train.model_copy(update={"task_args": train.task_args | {"from_scratch": True}})
    code = Path(request.code or ".").resolve()
    os.chdir(code)  # A task's own paths are relative to its code.
    task = load_task(train.task, train.task_args, code)
    sample = sample_of(train, task)

    @cache
    def predicted(size: int) -> Any:
        return forecast(
            task, train, micro_batch_size=size, world_size=request.world_size, sample=sample
        )

    copies = max(1, request.world_size // train.parallel.ranks_per_copy)
    shard = ceil_div(train.batch.size, copies)
    sizes = within_bubble(candidates(shard), shard, train.parallel.stages)
    most = None
    if (limit := request.available_bytes) is not None:
        most = largest(lambda size: Trial(predicted(size).peak, 0.0), sizes, limit_bytes=limit) or 0
    asked = train.batch.micro_size
    shown = min(asked, shard) if asked != "auto" else most or sizes[0]
    return ForecastAnswer(
        forecast=predicted(shown), micro_batch_size=shown, micro_batch_size_max=most
    )


def sample_of(train: Train, task: Task) -> Any:
    """One item of the training dataset, or for a built-in task a blank one of the same shape."""
    if train.task in BUILT_IN:
        blank: Any = task
        return blank.blank_sample()
    return seeded_sample(task.dataset("train"), 0, seed=train.seed)


if __name__ == "__main__":
    main(int(sys.argv[1]))
