"""Memory forecast of a planned job, computed on this machine.

For a task of one's own, or a service without torch.

The same process computes it as in the service (``python -m lockstep.engine.memory.job_forecast``),
from the folder that ``--code`` names.

Not here: the forecast itself (``engine.memory``), and the service's own (``api.jobs.forecasts``).
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lockstep.domain.spec import tasks
from lockstep.domain.spec.train import Train
from lockstep.domain.training.forecast_process import ForecastProcess
from lockstep.domain.training.memory import PlannedMemory
from lockstep.domain.training.predicted import ForecastRequest
from lockstep.domain.views import PlanView

ASK_SECONDS: Final = 300.0
"""A forecast that the service is computing is awaited so long."""
PAUSE_SECONDS: Final = 0.5
TELL_SECONDS: Final = 5.0
"""After this time the user reads what is awaited."""


def awaited(
    ask: Callable[[], PlanView],
    *,
    tell: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> PlanView:
    """Ask for a plan, again and again while the service computes its forecast.

    ``tell`` is called once with what is awaited, after :data:`TELL_SECONDS`.
    """
    began, told = clock(), False
    while True:
        answer = ask()
        waited = clock() - began
        if answer.memory is None or answer.memory.state != "computing" or waited >= ASK_SECONDS:
            return answer
        if waited >= TELL_SECONDS and not told:
            told = True
            tell(f"waiting for the service's memory forecast (up to {ASK_SECONDS:.0f} s)")
        pause(PAUSE_SECONDS)


def with_code(answer: PlanView, code: Path | None) -> PlanView:
    """Plan with a forecast that this machine computes if the service has none.

    Parameters
    ----------
    answer : PlanView
        The service's.
    code : Path or None
        Folder of the job's code.
    """
    memory, train = answer.memory, answer.spec.get("train")
    if memory is None or train is None or answer.plan is None or memory.source == "task":
        return answer
    own = tasks.is_own_task(train["task"])
    if (own and code is None) or importlib.util.find_spec("torch") is None:
        return answer
    available = (
        None
        if memory.capacity_bytes is None
        else int(memory.capacity_bytes * (1 - memory.headroom))
    )
    request = ForecastRequest(
        train=Train.model_validate(train),
        world_size=answer.plan.world_size,
        available_bytes=available,
        code=str(code.resolve()) if code is not None else None,
    )
    found = ForecastProcess()(request)
    if found.forecast is None:
        # The service's forecast from history is the fallback.
        new = (
            memory
            if memory.forecast is not None
            else memory.model_copy(update={"state": "unknown", "why": found.why})
        )
    else:
        new = PlannedMemory(
            state="known",
            source="code" if own else "task",
            forecast=found.forecast,
            micro_batch_size=found.micro_batch_size,
            micro_batch_size_max=found.micro_batch_size_max,
            device_type=memory.device_type,
            capacity_bytes=memory.capacity_bytes,
            headroom=memory.headroom,
        )
    return answer.model_copy(update={"memory": new})
