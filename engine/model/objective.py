"""Objective of one micro-batch: scaled sums of the task, and the penalty once per step.

The model *and* the task's loss are one module, so a micro-batch has one forward and one sync mode,
whatever the task calls inside (contract C10): strategies wrap this module, and DDP reads its flag
in forward, not in backward. Autocast is local to a thread, and ``nn.DataParallel`` runs this module
in threads, so it is entered here too.

Not here: weights and synchronization of micro-batches (``engine.step.gradient``), communication
between ranks (``engine.strategies``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor, nn

from lockstep.domain.training import metrics
from lockstep.engine.model import compiling
from lockstep.engine.model.precision import NARROW, Precision
from lockstep.engine.parallel.stages import StageEnd
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.task.interface import Batch, Task

WHOLE: Final = "loss"
"""Name of the only term of a loss that is one tensor."""


class Objective(nn.Module):
    """One micro-batch's part of the objective.

    The task's sums, each times its scale, and the penalty once per step.
    """

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        precision: Precision | None = None,
        compiled: nn.Module | None = None,
    ):
        super().__init__()
        self.task, self.model = task, model
        self.precision = precision if precision is not None else Precision()
        self.has_penalty = type(task).penalty is not Task.penalty
        self.before_penalty: Callable[[], None] = lambda: None
        """Hook of a strategy, called before the penalty reads parameters."""
        # In a tuple, where torch does not see a second module with the same parameters.
        self._compiled = (compiled,) if compiled is not None else ()

    def forward(
        self, batch: Batch, scales: Mapping[str, float] | None, *, penalize: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the scaled objective and the unscaled sums.

        A stage that is not the last returns the activation for the next one, and no sums.

        Parameters
        ----------
        batch : Batch
            On the device.
        scales : mapping of str to float, or None
            Factor of each term. Empty, it masks the terms and not the penalty: a micro-batch
            without samples. None masks all.
        penalize : bool
            True to add the penalty.
        """
        try:
            with self.precision.autocast():
                sums = as_terms(self._loss(batch, masked=not scales))
        except StageEnd as end:
            return end.activation, {}
        scaled = [term * (scales[name] if scales else 0.0) for name, term in sums.items()]
        objective = scaled[0] if len(scaled) == 1 else torch.stack(scaled).sum()
        if penalize and self.has_penalty:
            self.before_penalty()
            penalty = self.task.penalty(self.model)
            objective = objective + (penalty if scales is not None else penalty * 0.0)
        if torch.is_grad_enabled() and not objective.requires_grad:
            raise BadSpecError(
                "loss() does not depend on the model's parameters; check that it is not "
                "detached, converted to a number, or computed under torch.no_grad()",
            )
        return objective, {name: term.detach() for name, term in sums.items()}

    def evaluate(self, batch: Batch) -> dict[str, tuple[Tensor, float]]:
        """The task's sums and weights over one micro-batch of the eval split.

        Empty on a stage that is not the last.
        """
        try:
            with self.precision.autocast():
                return self.task.evaluate(self.model, batch)
        except StageEnd:
            return {}

    def _loss(self, batch: Batch, *, masked: bool) -> object:
        if masked or not self._compiled:
            return self.task.loss(self.model, batch)
        with compiling.explained():
            return self.task.loss(self._compiled[0], batch)


def _named(loss: object) -> list[tuple[str, object]]:
    if not isinstance(loss, Tensor) and isinstance(loss, Mapping):
        return sorted(loss.items())
    return [(WHOLE, loss)]


def as_terms(loss: object) -> dict[str, Tensor]:
    """A task's loss as named scalars, in the order of their names."""
    terms: dict[str, Tensor] = {}
    for name, term in _named(loss):
        if not isinstance(term, Tensor) or term.ndim:
            found = (
                f"a tensor of shape {tuple(term.shape)}"
                if isinstance(term, Tensor)
                else type(term).__name__
            )
            raise BadSpecError(
                f"loss() must return the sum as a scalar tensor, or a dict of them; {name!r} is "
                f"{found}",
            )
        if term.dtype in NARROW:
            raise BadSpecError(
                f"loss() returned {name!r} in {term.dtype}, in which a sum has three exact "
                "digits: compute the last reduction in float32, with "
                'functional.cross_entropy(..., reduction="sum") or with .float() before .sum()',
            )
        if name is not WHOLE and not metrics.NAME.fullmatch(f"train/weight/{name}"):
            raise BadSpecError(
                f"loss() returns a term {name!r}, which is not valid in a metric name",
            )
        terms[name] = term
    return terms
