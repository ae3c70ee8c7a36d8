"""Likely cause of a loss that is not a sum over samples, found by its effect on gradients.

With the whole W, the parts g1, g2, g3, and a coarser split into g12 and g3:

* A mean divides by a count c: c W = c1 g1 + c2 g2 + c3 g3.
* A term without samples, such as L2, is counted once per part: g1 + g2 + g3 - W is twice g12 + g3 -
  W.
* A mean with weights is some average: W = a1 g1 + a2 g2 + a3 g3 with a1 + a2 + a3 = 1.
* BatchNorm has no effect when its layers are in eval mode.
* The rest makes a sample's contribution depend on the others: in-batch negatives, rankings, shared
  statistics.

Not here: the comparison of the whole with its parts (``engine.preflight.additivity_check``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from lockstep.engine.preflight.probe_copy import ProbeCopy
from lockstep.engine.task.interface import Batch

PARTS: Final = (1, 1, 2)
"""Samples in each part. Unequal, so that a mean over samples differs from a mean over parts."""
_REFUSED: Final = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Relative difference, by number format, above which it is not rounding. A sum stays below 1e-12 in
float64; the margin is for very deep models."""
_REFUSED_COARSE: Final = 5e-2
"""Same limit if a part is computed in 16 bits or in TF32."""
_SAME: Final = {torch.float64: 1e-6, torch.float32: 1e-2}
"""Relative difference up to which a cause explains the measurement."""
_ENTRIES: Final = 4_096
"""Entries of each parameter's gradient that are compared."""
SUM: Final = (
    "return the sum (reduction='sum'), and return the divisor of the mean from weight(); the "
    "engine divides once, by the weight of the whole batch"
)
"""Correction of a mean."""


class Diagnosis:
    """Relation between the gradients of whole and parts."""

    def __init__(
        self,
        on: ProbeCopy,
        whole: Any,
        parts: list[Any],
        coarse: list[Any],
        *,
        difference: Callable[[], float | None],
        term: str | None,
    ):
        self._on, self._difference, self._term = on, difference, term
        self._whole, self._parts, self._coarse = whole, parts, coarse
        self._same = _SAME[on.dtype]

    def cause(self) -> str:
        """Likely cause and its correction."""
        trained = {
            name: module
            for name, module in self._on.model.named_modules()
            if isinstance(module, _BatchNorm) and module.training
        }
        for module in trained.values():
            module.eval()
        try:
            return self._cause(list(trained))
        finally:
            for module in trained.values():
                module.train()

    def _cause(self, norms: list[str]) -> str:
        """Return the cause, with the layers in ``norms`` in eval mode."""
        said = ""
        if norms:
            names = ", ".join(norms[:5]) + (f" and {len(norms) - 5} more" if len(norms) > 5 else "")
            said = (
                f"depends on the other samples of a micro-batch through BatchNorm ({names}): use "
                f"GroupNorm, or declare "
                "batch_dependent = True in the task"
            )
            left = self._difference()
            if left is None or left <= limit(self._on.dtype, self._on.device):
                return said
        cause = self._of_the_loss()
        return f"{said}; besides, it {cause}" if said else cause

    def _of_the_loss(self) -> str:
        whole = self._vector(self._whole[0])
        parts = [self._vector(batch) for batch, _ in self._parts]
        if not all(bool(part.isfinite().all()) for part in parts):
            return "divides by a count that can be zero: " + SUM
        if self._is_mean(whole, parts):
            return "is a mean over the micro-batch: " + SUM
        thrice = sum(parts) - whole
        twice = self._vector(self._coarse[0][0]) + parts[2] - whole
        if self._close(thrice, 2 * twice):
            kind = (
                "an L2 penalty on the parameters"
                if self._is_proportional(twice)
                else "a penalty on the parameters"
            )
            return (
                f"has a term that does not depend on the samples, {kind}, which would be added "
                f"once per micro-batch: "
                "move it to penalty(self, model), which is added once per step"
            )
        if self._is_average(whole, parts):
            return (
                "is a mean with weights over the micro-batch, such as a class-weighted "
                "cross-entropy: return the weighted sum (reduction='sum'), and return the sum of "
                "the weights from weight()"
            )
        return (
            "depends for each sample on the others in its micro-batch (in-batch negatives, a "
            "ranking, statistics over the samples): make the loss of each sample independent of "
            "the others, or declare batch_dependent = True in the task"
        )

    def _vector(self, batch: Batch) -> Tensor:
        """Return some of the gradient's entries, and the losses."""
        self._on.forget()
        gradient, losses = self._on.gradient(batch, self._term)
        return torch.cat([*(each.flatten()[:_ENTRIES].double() for each in gradient), losses])

    def _is_mean(self, whole: Tensor, parts: list[Tensor]) -> bool:
        counts: list[tuple[float, ...]] = [tuple(map(float, PARTS))]
        weights = [weight for _, weight in self._parts]
        if isinstance(weights[0], dict):
            counts += [tuple(float(weight[term]) for weight in weights) for term in weights[0]]
        else:
            counts.append(tuple(map(float, weights)))
        return any(
            self._close(
                whole * sum(count), sum(part * c for part, c in zip(parts, count, strict=True))
            )
            for count in counts
        )

    def _is_average(self, whole: Tensor, parts: list[Tensor]) -> bool:
        columns = torch.stack([part.cpu() for part in parts], 1)
        sizes = torch.linalg.svdvals(columns)
        if sizes[-1] <= self._same * sizes[0]:
            # The parts are not independent, so almost any coefficients would fit.
            return False
        fit = torch.linalg.lstsq(columns, whole.cpu().unsqueeze(1)).solution
        fits = self._close((columns @ fit).squeeze(1), whole.cpu())
        return fits and abs(float(fit.sum()) - 1) <= self._same

    def _is_proportional(self, difference: Tensor) -> bool:
        """Return whether a difference is proportional to the parameters where it is not zero."""
        parameters = [
            parameter.detach().flatten()[:_ENTRIES].double() for parameter in self._on.parameters()
        ]
        numbers = torch.cat(parameters)
        difference = difference[: len(numbers)]
        touched = difference.abs() > self._same * difference.abs().max()
        numbers, difference = numbers[touched], difference[touched]
        ratio = (difference @ numbers) / (numbers @ numbers)
        return self._close(difference, ratio * numbers)

    def _close(self, one: Any, other: Any) -> bool:
        largest = max(float(torch.linalg.vector_norm(one)), float(torch.linalg.vector_norm(other)))
        return largest > 0 and float(torch.linalg.vector_norm(one - other)) <= self._same * largest


def limit(dtype: torch.dtype, device: torch.device) -> float:
    """Return the relative difference above which it is not rounding."""
    if device.type == "cuda" and dtype == torch.float32:
        return _REFUSED_COARSE  # Convolutions are in TF32 by default.
    return _REFUSED.get(dtype, _REFUSED_COARSE)
