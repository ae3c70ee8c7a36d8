"""What one rank does, seen from outside: nothing here asks an engine about itself.

Gradients and rates come from torch's own hook before each optimizer step. Which rows were used
comes from the loss: a micro-batch counts when its loss takes part in a backward with a factor other
than zero, so masked passes of an engine (to warm up, to fill a slot) do not.

Only what an engine *reports* to its user, its loss and gradient norm, is passed on by the adapter.
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
    """As the optimizer got it."""
    rate: float
    rows: list[list[int]]
    """Row numbers of each micro-batch that this rank ran for it."""


@dataclass
class RankObservation:
    """What one rank of one run did."""

    updates: list[Update] = field(default_factory=list)
    left_over: list[list[int]] = field(default_factory=list)
    """Micro-batches after the last update."""
    weights: dict[str, Tensor] = field(default_factory=dict)
    norms: list[float] = field(default_factory=list)
    """As the engine reports them."""
    losses: list[float] = field(default_factory=list)
    """As the engine reports them, of each update."""
    collectives: list[int] = field(default_factory=list)
    """From each update to the next, if they were counted."""
    error: str = ""
    """The exception that ended the run, if one did."""

    def rows(self) -> list[int]:
        """All row numbers, in the order in which they were used."""
        micro_batches = [one for update in self.updates for one in update.rows] + self.left_over
        return [index for one in micro_batches for index in one]


class Observer:
    """Gives an engine the case's model and losses, and watches what becomes of them.

    Parameters
    ----------
    case : Case
    """

    def __init__(self, case: Case):
        self.case = case
        self.seen = RankObservation()
        self._model: nn.Module | None = None

    def model(self) -> nn.Module:
        """The model to train. Called once per run."""
        self._model = initial(self.case)
        return self._model

    def sum(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss of a micro-batch as a sum over what ``weight`` counts."""
        loss = total(self.case, model, batch)
        if loss.requires_grad and innermost(model) is self._model:
            ids: list[int] = batch[0].tolist()
            loss.register_hook(lambda factor: self._used(ids, factor))  # type: ignore[no-untyped-call] # torch declares no types here
        return loss

    def mean(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss of a micro-batch as its mean, as a loss function of torch gives it."""
        return (
            self.sum(model, batch) / weight(self.case, batch)
            if self.weight(batch)
            else self.sum(model, batch) / 0.0
        )

    def weight(self, batch: Any) -> float:
        """How many units a micro-batch has."""
        return weight(self.case, batch)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch all optimizers of this process."""
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
            # An engine may step once without a gradient, to have the optimizer's state in memory
            # early.
            return
        gradient = {
            name: parameter.grad.detach().clone()
            for name, parameter in self._model.named_parameters()
            if parameter.grad is not None
        }
        rows, self.seen.left_over = self.seen.left_over, []
        self.seen.updates.append(Update(gradient, optimizer.param_groups[0]["lr"], rows))


def between_updates(profiler: torch.profiler.profile, updates: int) -> list[int]:
    """Gloo's operations from each optimizer step to the next, of the last ``updates`` ones."""
    events = list(profiler.events() or [])  # type: ignore[no-untyped-call] # torch declares no types here
    steps = sorted(
        event.time_range.start for event in events if event.name.startswith("Optimizer.step#")
    )[-updates:]
    at = [event.time_range.start for event in events if event.name.startswith("gloo:")]
    return [sum(before <= time < after for time in at) for before, after in pairwise(steps)]


def innermost(model: nn.Module) -> nn.Module:
    """The model inside the wrappers that call it ``module``."""
    while isinstance(inner := getattr(model, "module", None), nn.Module):
        model = inner
    return model
