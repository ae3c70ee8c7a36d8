"""Effects of the calls of a task that no sum of losses shows.

* State that calls change and read (``engine.preflight.fast_forward``).
* Draws of random numbers, by any of the samples.
* State that differs between ranks from the start, and is read.
* The rank and the number of ranks, which code of other programs reads to divide its loss.
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
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

from lockstep.engine.preflight.comparison import STRETCH, Worst, stretched, tolerance
from lockstep.engine.preflight.fast_forward import (
    SINGLES_MAX,
    calls_of,
    read_by,
)
from lockstep.engine.preflight.read_state import ReadState, warnings_of
from lockstep.engine.preflight.trial_task import TrialTask, divided
from lockstep.engine.runtime import randomness
from lockstep.engine.runtime.errors import listed, release
from lockstep.engine.runtime.single_rank import as_single_rank
from lockstep.engine.state.between_ranks import RankDifference
from lockstep.engine.task.interface import Task

R = TypeVar("R")


@dataclass(frozen=True)
class CallEffects:
    """Effects of the calls of a task."""

    read: tuple[ReadState, ...] = ()
    """State that calls change and read."""
    draws: bool = False
    """True if the loss of some sample draws random numbers."""
    nonlinear: str = ""
    """Warning about a gradient that is no multiple of the loss's factor."""
    differing: tuple[str, ...] = ()
    """State that is read and differs between ranks from the start, with its values."""
    of_ranks: bool = False
    """True if the loss or the evaluation of this rank is another one on a single rank."""

    def warnings(self, known: Sequence[str]) -> list[str]:
        """Return the warnings, about state only if no known warning names it."""
        found = [self.nonlinear] if self.nonlinear else []
        if self.differing:
            found.append(
                "loss() or evaluate() reads state that differs between ranks from the start "
                f"({listed(list(self.differing))}): ranks train on different objectives: build "
                "the task and the model equally on all ranks; prepare() runs on the first rank of "
                "a node alone"
            )
        if self.of_ranks:
            found.append(
                "loss() or evaluate() computes something else on a single rank: it reads the rank "
                "or the number of ranks, or communicates (torch.distributed, RANK, WORLD_SIZE), so "
                "the run depends on the ranks: leave that to the engine, which divides by the "
                "units of the whole batch and adds up evaluations"
            )
        return [*found, *warnings_of(self.read, known)]


def effects_of(
    task: Task,
    model: nn.Module,
    dtype: torch.dtype | None,
    samples: list[Any],
    *,
    seed: int,
    evaluates: bool,
    differences: Sequence[RankDifference] = (),
) -> CallEffects:
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
    differences : sequence of RankDifference
        Between the ranks.
    """

    def found(look: Callable[[TrialTask], R], nothing: R, dtype: torch.dtype | None = dtype) -> R:
        try:
            trial = TrialTask(task, model, dtype, seed=seed)
            try:
                return look(trial)
            finally:
                trial.close()
        except Exception as error:  # noqa: BLE001 - the warm-up comes next, and fails where training would
            release(error)
            return nothing

    return CallEffects(
        found(lambda trial: read_by(trial, samples, seed=seed, evaluates=evaluates), ()),
        found(lambda trial: _draws(trial, samples), False),
        found(lambda trial: _nonlinear(trial, samples), ""),
        # In place: a value of another rank has the format of the model.
        found(partial(_differing, differences, samples, seed, evaluates), (), None)
        if differences
        else (),
        # On one rank, too: state that is not found depends on the number of calls.
        found(lambda trial: _of_ranks(trial, samples, seed, evaluates=evaluates), False),
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


def _differing(
    differences: Sequence[RankDifference],
    samples: list[Any],
    seed: int,
    evaluates: bool,
    trial: TrialTask,
) -> tuple[str, ...]:
    """Return the differences that change a call, on rank 0.

    All ranks make the same number of calls, because a loss may communicate.
    """
    trial.begin(divided(trial.task, samples[:2], [2])[0])
    now, found, expected = trial.held(), [], []
    for call in calls_of(trial, samples[:2], seed, evaluates=evaluates):
        with suppress(Exception):  # It may evaluate other samples.
            expected.append((call, call.call()))
    for each in differences[:SINGLES_MAX]:
        now.put_back()
        each.take(trial.inventory.walk())
        for call, value in expected:
            try:
                same = call.same(call.call(), value)
            except Exception:  # noqa: BLE001 - of code that needs the value
                same = False
            if not same:
                found.append(f"{each.name}: {each.shown}")
                break
    now.put_back()
    return tuple(found)


def _of_ranks(trial: TrialTask, samples: list[Any], seed: int, *, evaluates: bool) -> bool:
    """Return whether some call of this rank computes something else as a single rank."""
    trial.begin(divided(trial.task, samples[:2], [2])[0])
    now = trial.held()
    for call in calls_of(trial, samples[:2], seed, evaluates=evaluates):
        expected = call.call()
        now.put_back()
        if not call.same(call.call(), expected):
            continue  # It is no function of its state, and has a warning of its own.
        now.put_back()
        with as_single_rank():
            try:
                same = call.same(call.call(), expected)
            except Exception:  # noqa: BLE001 - it communicates
                same = False
        now.put_back()
        if not same:
            return True
    return False


def _nonlinear(trial: TrialTask, samples: list[Any]) -> str:
    """Return a warning if the gradient of two samples is no multiple of the loss's factor."""
    piece = divided(trial.task, samples[:2], [2])[0]
    trial.begin(piece)
    trial.settle()
    with randomness.DrawDetector(trial.device) as watch:
        found = stretched(trial, piece)
    if watch.drawn:
        return ""  # Its gradient differs in each call, for any factor.

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
