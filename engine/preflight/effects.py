"""Effects of the calls of a task that no sum of losses shows.

* State that calls change and read (``engine.preflight.fast_forward``).
* Draws of random numbers, by any of the samples.
* A gradient that is no multiple of the loss's factor. The engine multiplies the loss by the number
  of ranks over the units of the batch, so a backward hook that clips gives other gradients on
  another number of ranks.

None of it is refused: each becomes a warning. A resumed run is checked again.

Not here: a loss that is not a sum over samples (``engine.preflight.additivity_check``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn

from lockstep.engine.preflight.comparison import STRETCH, Worst, stretched, tolerance
from lockstep.engine.preflight.fast_forward import ReadState, read_by, warnings_of
from lockstep.engine.preflight.trial_task import TrialTask, divided
from lockstep.engine.runtime import randomness
from lockstep.engine.runtime.errors import listed, release
from lockstep.engine.task.interface import Task

R = TypeVar("R")


@dataclass(frozen=True)
class Effects:
    """Effects of the calls of a task."""

    read: tuple[ReadState, ...] = ()
    """State that calls change and read."""
    draws: bool = False
    """True if the loss of some sample draws random numbers."""
    nonlinear: str = ""
    """Warning about a gradient that is no multiple of the loss's factor."""

    def warnings(self, known: Sequence[str]) -> list[str]:
        """Return the warnings, about state only if no known warning names it."""
        return [*filter(None, [self.nonlinear]), *warnings_of(self.read, known)]


def effects_of(
    task: Task,
    model: nn.Module,
    dtype: torch.dtype | None,
    samples: list[Any],
    *,
    seed: int,
    evaluates: bool,
) -> Effects:
    """Return the effects of calls with some samples.

    Parameters
    ----------
    task : Task
    model : nn.Module
        In training mode.
    dtype : torch.dtype or None
        Number format of a copy; None to compute in place.
    samples : list
        Sorted: unlike ones are far from each other.
    seed : int
        The job's.
    evaluates : bool
        True if the run evaluates.
    """

    def found(look: Callable[[TrialTask], R], nothing: R) -> R:
        try:
            trial = TrialTask(task, model, dtype, seed=seed)
            try:
                return look(trial)
            finally:
                trial.close()
        except Exception as error:  # noqa: BLE001 - the warm-up comes next, and fails where training would
            release(error)
            return nothing

    return Effects(
        found(lambda trial: read_by(trial, samples, seed=seed, evaluates=evaluates), ()),
        found(lambda trial: _draws(trial, samples), False),
        found(lambda trial: _nonlinear(trial, samples), ""),
    )


def _draws(trial: TrialTask, samples: list[Any]) -> bool:
    """Return whether some sample draws, alone or with the others."""
    pieces = divided(trial.task, samples, [1] * len(samples))
    pieces += divided(trial.task, samples, [len(samples)])
    trial.drop_again()
    for piece in pieces:
        with randomness.DrawDetector(trial.device) as watch, suppress(ValueError):  # Of BatchNorm.
            trial.terms(piece)
        if watch.drawn:
            return True
    return False


def _nonlinear(trial: TrialTask, samples: list[Any]) -> str:
    """Return a warning if the gradient of two samples is no multiple of the loss's factor."""
    piece = divided(trial.task, samples[:2], [2])[0]
    trial.begin(piece)
    trial.settle()
    found = stretched(trial, piece)

    def worst_above(dtype: torch.dtype) -> Worst | None:
        limit, floor = tolerance(dtype, trial.device)
        worst = found.worst(floor)
        return worst if limit < worst.difference < math.inf else None

    # A format with a small range of numbers overflows. State has a warning of its own.
    if worst_above(trial.dtype) is None or not trial.repeats(piece):
        return ""
    coarsest = trial.coarsest(piece)
    if coarsest == torch.float16 or (worst := worst_above(coarsest)) is None:
        return ""
    hooked = [
        name or type(module).__name__
        for name, module in trial.model.named_modules()
        if module._backward_hooks or module._backward_pre_hooks
    ]
    hooks = f"; backward hooks of {listed(hooked)}" if hooked else ""
    return (
        f"backward() is not linear: for a loss that is {STRETCH**2:,.0f} times as large, the "
        f"gradient is not ({worst}{hooks}): the engine multiplies a loss by the number of ranks "
        "over the units of the batch, so the run depends on the ranks: let a hook multiply what "
        "it gets by a number, and clip with clip_grad_norm"
    )
