"""The learning rate as a pure function of the optimizer step.

There is no scheduler object to step too often and no state to save: step s has the same rate for
any number of ranks and accumulation steps (contract C18), and after a resume.

Not here: the optimizer it is set on (``engine.step.optimizer``).
"""

from __future__ import annotations

import math

from lockstep.domain.spec.job import Schedule


def learning_rate(schedule: Schedule, *, lr: float, step: int, steps: int) -> float:
    """The rate of one optimizer step.

    Parameters
    ----------
    schedule : Schedule
    lr : float
        The peak, reached at the end of the warm-up.
    step : int
        Optimizer step, counted from 0.
    steps : int
        Optimizer steps of the whole run. The last one has ``min_lr``.
    """
    if step < schedule.warmup_steps:
        return lr * (step + 1) / schedule.warmup_steps
    if schedule.name == "constant":
        return lr
    falling = steps - 1 - schedule.warmup_steps
    progress = min(1.0, (step - schedule.warmup_steps) / falling) if falling > 0 else 1.0
    left = (1 + math.cos(math.pi * progress)) / 2 if schedule.name == "cosine" else 1 - progress
    return schedule.min_lr + (lr - schedule.min_lr) * left
