"""The objective of one micro-batch: the task's sums, each times its factor, and the penalty once per step.

The model *and* the task's loss are one module, so that a micro-batch has one forward and one sync mode, whatever the
task calls inside (contract C10): strategies wrap this module, and DDP reads its flag in forward, not in backward.

Not here: how slots are weighted and when they synchronise (``engine.step``), what ranks share (``engine.strategies``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor, nn

from domain import metrics
from domain.outcomes import Reason
from engine.errors import EngineError
from engine.task import Batch, Task

WHOLE: Final = "loss"
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

    def evaluate(self, batch: Batch) -> dict[str, tuple[Tensor, float]]:
        """The task's sums and weights over one micro-batch of the eval split."""
        return self.task.evaluate(self.model, batch)


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
