"""Observation of one rank from outside, without information from the engine about itself.

Gradients and rates come from torch's own hook before each optimizer step. The used rows come from
the loss: a micro-batch counts if its loss takes part in a backward with a factor other than zero,
so masked passes of an engine (a warm-up, an empty micro-batch) do not count.

The adapter passes on only the values that an engine *reports* to its user: loss and gradient norm.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from benchmarks.conformance.case import Case, initial, total, weight


@dataclass
class Update:
    """One optimizer step."""

    gradient: dict[str, Tensor]
    """Gradient as passed to the optimizer."""
    rate: float
    rows: list[list[int]]
    """Row numbers of each micro-batch that this rank ran for the update."""


@dataclass
class RankObservation:
    """Observations of one rank in one run."""

    updates: list[Update] = field(default_factory=list)
    left_over: list[list[int]] = field(default_factory=list)
    """Micro-batches after the last update."""
    weights: dict[str, Tensor] = field(default_factory=dict)
    norms: list[float] = field(default_factory=list)
    """Gradient norms as reported by the engine."""
    losses: list[float] = field(default_factory=list)
    """Loss of each update as reported by the engine."""
    collectives: list[int] = field(default_factory=list)
    """Collectives from each update to the next, if they were counted."""
    error: str = ""
    """Exception that ended the run, or an empty string."""

    def rows(self) -> list[int]:
        """Return all row numbers, in the order of their use."""
        micro_batches = [one for update in self.updates for one in update.rows] + self.left_over
        return [index for one in micro_batches for index in one]


class Observer:
    """Source of the case's model and losses, which records their use by an engine."""

    def __init__(self, case: Case):
        self.case = case
        self.seen = RankObservation()
        self._model: nn.Module | None = None

    def model(self) -> nn.Module:
        """Return the model to train. Called once per run."""
        self._model = initial(self.case)
        return self._model

    def sum(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the loss of a micro-batch as a sum over the units of ``weight``."""
        loss = total(self.case, model, batch)
        if loss.requires_grad and innermost(model) is self._model:
            ids: list[int] = batch[0].tolist()
            loss.register_hook(lambda factor: self._used(ids, factor))  # type: ignore[no-untyped-call] # torch declares no types here
        return loss

    def mean(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the loss of a micro-batch as a mean, as torch's loss functions do."""
        return (
            self.sum(model, batch) / weight(self.case, batch)
            if self.weight(batch)
            else self.sum(model, batch) / 0.0
        )

    def weight(self, batch: Any) -> float:
        """Return the number of units of a micro-batch."""
        return weight(self.case, batch)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Observe all optimizers of this process."""
        profiler = (
            torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            if self.case.counted
            else None
        )
        hook = register_optimizer_step_pre_hook(self._before_step)
        try:
            if profiler is None:
                yield
            else:
                with profiler:
                    yield
                self.seen.collectives = between_updates(profiler, len(self.seen.updates))
        finally:
            hook.remove()
            if self._model is not None:
                self.seen.weights = {
                    name: value.detach().clone() for name, value in self._model.state_dict().items()
                }

    def _used(self, ids: list[int], factor: Tensor) -> None:
        if float(factor) != 0.0:
            self.seen.left_over.append(ids)

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._model is None or (not self.seen.updates and not self.seen.left_over):
            # An engine may step once without a gradient, to allocate the optimizer's state early.
            return
        gradient = {
            name: parameter.grad.detach().clone()
            for name, parameter in self._model.named_parameters()
            if parameter.grad is not None
        }
        rows, self.seen.left_over = self.seen.left_over, []
        self.seen.updates.append(Update(gradient, optimizer.param_groups[0]["lr"], rows))


def between_updates(profiler: torch.profiler.profile, updates: int) -> list[int]:
    """Return the number of Gloo's operations between consecutive optimizer steps.

    Only the last ``updates`` steps count.
    """
    # Not profiler.events(): it builds a tree of all operators, which takes seconds.
    events = profiler.profiler.kineto_results.events()  # type: ignore[union-attr]
    steps = sorted(e.start_ns() for e in events if e.name().startswith("Optimizer.step#"))
    steps = steps[-updates:]
    at = [each.start_ns() for each in events if each.name().startswith("gloo:")]
    return [sum(before <= time < after for time in at) for before, after in pairwise(steps)]


def innermost(model: nn.Module) -> nn.Module:
    """Return the model inside the wrappers that hold it as ``module``."""
    while isinstance(inner := getattr(model, "module", None), nn.Module):
        model = inner
    return model
