"""The optimizer of a spec, its rate at each step, and clipping of the whole batch's gradient.

All of it counts optimizer steps and sees the reduced gradient, never one slot's or one rank's share.

Not here: the gradient itself (``engine.step``), the rate's formula (``engine.schedule``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from domain.outcomes import Reason
from domain.spec import AdamW, Train
from engine.errors import EngineError
from engine.schedule import learning_rate
from engine.strategies.base import Strategy
from engine.task import Task


class Optimizer:
    """A torch optimizer driven by the step number."""

    def __init__(self, train: Train, task: Task, strategy: Strategy, *, steps: int):
        self._train, self._strategy, self._steps = train, strategy, steps
        groups = task.param_groups(strategy.model)
        _check_groups(groups, strategy.model)
        # Each group's rate relative to the spec's; the schedule multiplies it.
        self._relative = [group.get("lr", train.optimizer.lr) / train.optimizer.lr for group in groups]
        self.inner = strategy.optimizer(lambda given: _build(train, given), groups)
        self._parameters = [parameter for group in groups for parameter in group["params"]]

    def rate(self, step: int) -> float:
        """The spec's learning rate at ``step``, counted from 0."""
        return learning_rate(self._train.schedule, lr=self._train.optimizer.lr, step=step, steps=self._steps)

    def norm(self, share: float) -> Tensor:
        """2-norm of the whole gradient, on the device. Equal on all ranks. All ranks must call this."""
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        return self._strategy.norm(gradients, share)

    def update(self, step: int, norm: Tensor | None) -> None:
        """Clip by ``norm`` if the spec asks for it, and move the parameters by the rate of ``step``."""
        if self._train.clip_grad_norm is not None and norm is not None:
            self._strategy.clip(self._parameters, self._train.clip_grad_norm, norm)
        rate = self.rate(step)
        for group, relative in zip(self.inner.param_groups, self._relative, strict=True):
            group["lr"] = rate * relative
        self.inner.step()


def _build(train: Train, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    settings = train.optimizer
    if isinstance(settings, AdamW):
        return torch.optim.AdamW(
            groups, lr=settings.lr, betas=settings.betas, eps=settings.eps, weight_decay=settings.weight_decay
        )
    return torch.optim.SGD(
        groups,
        lr=settings.lr,
        momentum=settings.momentum,
        nesterov=settings.nesterov,
        weight_decay=settings.weight_decay,
    )


def _check_groups(groups: list[dict[str, Any]], model: nn.Module) -> None:
    """Every trainable parameter in one group: one left out would silently never be trained."""
    given = {id(parameter) for group in groups for parameter in _listed(group)}
    left_out = [
        name for name, parameter in model.named_parameters() if parameter.requires_grad and id(parameter) not in given
    ]
    if left_out:
        raise EngineError(
            Reason.BAD_SPEC,
            f"param_groups() leaves out {', '.join(left_out[:5])}: put each trainable parameter into a group, or freeze it with requires_grad_(False)",
        )
    if not given:
        raise EngineError(Reason.BAD_SPEC, "the model has no parameter that requires a gradient: nothing to train")


def _listed(group: dict[str, Any]) -> Iterable[nn.Parameter]:
    """A group's parameters, kept as a list: a generator would be empty the second time."""
    group["params"] = list(group["params"])
    listed: list[nn.Parameter] = group["params"]
    return listed
