"""Replicas of the model, whose gradients are averaged: DistributedDataParallel behind a small seam.

The model *and* the task's loss are wrapped in one module, so that a micro-batch has one forward and one sync mode,
whatever the task calls inside (contract C10): DDP reads its flag in forward, not in backward.

Not here: how slots are weighted and when they synchronise (``engine.step``).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from domain import metrics
from domain.outcomes import Reason
from engine.errors import EngineError
from engine.ranks import Ranks
from engine.task import Batch, Task

_SYNC_BUFFERS = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in inspect.signature(DistributedDataParallel).parameters
)
"""What DDP calls the broadcast of buffers in each forward: torch 2.13 renamed it."""

WHOLE = "loss"
"""Name of the only term of a loss that is one tensor."""


class Objective(nn.Module):
    """One micro-batch's part of the objective: the task's sums, each times its scale, and the penalty once per step."""

    def __init__(self, task: Task, model: nn.Module):
        super().__init__()
        self.task, self.model = task, model
        self.has_penalty = type(task).penalty is not Task.penalty

    def forward(
        self, batch: Batch, scales: Mapping[str, float] | None, *, penalize: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The scaled objective, and the unscaled sums.

        Parameters
        ----------
        batch : Batch
            On the device.
        scales : mapping of str to float, or None
            Factor of each term; None masks everything.
        penalize : bool
            Whether the penalty is added here.
        """
        sums = as_terms(self.task.loss(self.model, batch))
        objective = torch.stack([term * (scales[name] if scales else 0.0) for name, term in sums.items()]).sum()
        if penalize and self.has_penalty:
            penalty = self.task.penalty(self.model)
            objective = objective + (penalty if scales else penalty * 0.0)
        return objective, {name: term.detach() for name, term in sums.items()}


def as_terms(loss: object) -> dict[str, Tensor]:
    """A task's loss as named scalars, in the order of their names."""
    terms: dict[str, Tensor] = {}
    for name, term in sorted(loss.items()) if isinstance(loss, Mapping) else [(WHOLE, loss)]:
        if not isinstance(term, Tensor) or term.ndim:
            found = f"a tensor of shape {tuple(term.shape)}" if isinstance(term, Tensor) else type(term).__name__
            raise EngineError(
                Reason.BAD_SPEC,
                f"loss() must return the sum as a scalar tensor, or a dict of them; {name!r} is {found}",
            )
        if not metrics.NAME.fullmatch(f"train/weight/{name}"):
            raise EngineError(Reason.BAD_SPEC, f"loss() names a term {name!r}, which cannot be part of a metric's name")
        terms[name] = term
    return terms


class Replicas:
    """The objective on every rank, with gradients averaged in the last backward of a step."""

    def __init__(self, objective: Objective, ranks: Ranks, *, bucket_cap_mb: float | None):
        self._objective = objective
        self._ddp: DistributedDataParallel | None = None
        if ranks.world_size > 1:
            # No buffers in forward: a broadcast of rank 0's buffers in every step would be one more collective, and
            # right for no rank's running statistics. Buffers are still made equal here, at the start.
            options: dict[str, Any] = {_SYNC_BUFFERS: False}
            self._ddp = DistributedDataParallel(
                objective,
                process_group=ranks.device_group,
                bucket_cap_mb=bucket_cap_mb,
                **options,
            )

    def __call__(
        self, batch: Batch, scales: Mapping[str, float] | None, *, penalize: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Run the objective's forward. All ranks must call this for a slot that synchronises."""
        module = self._objective if self._ddp is None else self._ddp
        result: tuple[Tensor, dict[str, Tensor]] = module(batch, scales, penalize=penalize)
        return result

    def local(self) -> AbstractContextManager[None]:
        """Forward and backward inside it add to this rank's own gradient only."""
        return nullcontext() if self._ddp is None else self._ddp.no_sync()

    def close(self) -> None:
        """Drop DDP's wrapper, which must not outlive the process group."""
        self._ddp = None
