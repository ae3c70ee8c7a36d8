"""Comparison of the gradients and losses of two divisions of the same samples.

The gradient of division B is added with the sign -1 to that of division A, so the difference is
left in ``.grad`` and no second gradient is stored. With g(p, piece) the gradient of parameter p,

    s(p) = max over A, B of the sum over pieces of ‖g(p, piece)‖,  but at least f · ‖s‖
    difference = max over p of ‖g(p, A) - g(p, B)‖ / s(p)

The scale is a sum over pieces, because the gradients of samples may cancel. The floor f is needed
where the true gradient is zero, as for the bias of the keys in attention.

Not here: the cause of a difference (``engine.preflight.causes``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import torch
from torch import Tensor

from lockstep.engine.model.normalization import refuses_one_sample
from lockstep.engine.preflight.trial_task import Piece, TrialTask
from lockstep.engine.runtime.device import traits_of

Division = Sequence[Piece]


class Tolerance(NamedTuple):
    """Largest difference by rounding in a number format."""

    limit: float
    floor: float
    """Smallest scale of a parameter or term, relative to the scale of all of them."""


STRETCH: Final = 2.0**10
"""Factor of the loss, and the reciprocal of another, for which gradients must be alike."""
_FLOAT64: Final = Tolerance(1e-9, 1e-4)
_FLOAT32: Final = Tolerance(1e-4, 1e-2)
_COARSE: Final = Tolerance(5e-2, 1e-2)
"""For 16 bits and TF32."""


def tolerance(dtype: torch.dtype, device: torch.device) -> Tolerance:
    """Return the tolerance where ``dtype`` is the coarsest format of a computation.

    Measured on 32 ordinary models: at most 5e-15 in float64, 4e-6 in float32, 5e-3 with 16 bits.
    """
    if dtype in (torch.float64, torch.complex128):
        return _FLOAT64
    # Convolutions are in TF32 by default where there is one.
    return _FLOAT32 if dtype.itemsize >= 4 and not traits_of(device).has_tf32 else _COARSE


class Worst(NamedTuple):
    """Largest difference, and its place: a parameter or a term of the loss."""

    difference: float
    parameter: str = ""
    term: str = ""

    def __str__(self) -> str:
        where = f"gradient of {self.parameter}" if self.parameter else f"value of {self.term}"
        far = f"{self.difference:.2g} apart" if math.isfinite(self.difference) else "not finite"
        return f"{where}: {far}"


@dataclass(frozen=True)
class Compared:
    """Result of a comparison."""

    finite: bool
    """False if division A has a loss or gradient that is not finite."""
    gradients: dict[str, tuple[float, float]]
    """Distance and scale of each parameter's gradient."""
    losses: dict[str, tuple[float, float]]
    """Distance and scale of each term."""
    complete: bool = False
    """True if every parameter received a gradient."""
    one_refused: bool = False
    """True if BatchNorm refuses a single sample."""

    @property
    def empty(self) -> bool:
        """True if all gradients are zero."""
        return self.finite and not self.one_refused and not self._total(self.gradients)

    def worst(self, floor: float) -> Worst:
        """Return the largest relative difference."""
        least = floor * self._total(self.gradients)
        found = [
            Worst(_ratio(off, max(scale, least)), parameter=name)
            for name, (off, scale) in self.gradients.items()
        ]
        least = floor * self._total(self.losses)
        found += [
            Worst(_ratio(off, max(scale, least)), term=name)
            for name, (off, scale) in self.losses.items()
        ]
        return max(found, key=lambda each: each.difference, default=Worst(0.0))

    def _total(self, measured: dict[str, tuple[float, float]]) -> float:
        return math.sqrt(math.fsum(scale * scale for _, scale in measured.values()))


def _ratio(off: float, scale: float) -> float:
    if not (math.isfinite(off) and math.isfinite(scale)):
        return math.inf  # A piece divides by zero where the whole does not.
    return off / scale if off > 0 else 0.0


def compared(
    trial: TrialTask,
    whole: Division,
    parts: Division,
    term: str | None = None,
    *,
    between: Callable[[], None] = lambda: None,
) -> Compared:
    """Compare two divisions of the same samples.

    Parameters
    ----------
    trial : TrialTask
    whole, parts : sequence of Piece
    term : str, optional
        The only term of the loss that counts.
    between : callable
        Called between the two.
    """
    trial.forget()
    names = list(trial.trained)
    of_whole, of_parts = _Sizes(trial), _Sizes(trial)
    try:
        with of_whole.measured():
            losses = torch.stack([trial.add(piece, term=term) for piece in whole])
        if not bool(losses.isfinite().all() and of_whole.sums.isfinite().all()):
            return Compared(False, {}, {})
        between()
        with of_parts.measured():
            other = torch.stack([trial.add(piece, sign=-1.0, term=term) for piece in parts])
        scales = torch.maximum(of_whole.sums, of_parts.sums).tolist()
        off = [0.0 if p.grad is None else float(_norm(p.grad)) for p in trial.trained.values()]
    except ValueError as error:
        if not refuses_one_sample(error):
            raise
        infinite = {names[0]: (math.inf, math.inf)}
        return Compared(True, infinite, {}, one_refused=True)
    finally:
        trial.forget()
    off_losses = (losses.sum(0) - other.sum(0)).abs().tolist()
    loss_scales = torch.maximum(losses.abs().sum(0), other.abs().sum(0)).tolist()
    terms = trial.names if term is None else (term,)
    return Compared(
        True,
        dict(zip(names, zip(off, scales, strict=True), strict=True)),
        dict(zip(terms, zip(off_losses, loss_scales, strict=True), strict=True)),
        complete=len(of_whole.arrived) == len(names),
    )


def stretched(trial: TrialTask, piece: Piece) -> Compared:
    """Compare the gradients of a loss that is multiplied by a large and by a small factor.

    Each is divided by its factor, a power of two, so that no digit is lost.
    """
    trial.forget()
    sizes = _Sizes(trial)
    try:
        trial.add(piece, sign=STRETCH)
        for parameter in trial.trained.values():
            if parameter.grad is not None:
                parameter.grad.div_(STRETCH**2)
        with sizes.measured():
            trial.add(piece, sign=-1 / STRETCH)
        off = [0.0 if p.grad is None else float(_norm(p.grad)) for p in trial.trained.values()]
    finally:
        trial.forget()
    pairs = zip(off, sizes.sums.tolist(), strict=True)
    return Compared(True, dict(zip(trial.trained, pairs, strict=True)), {})


class _Sizes:
    """Norms of the gradients of single backwards, added up by parameter."""

    def __init__(self, trial: TrialTask):
        self._parameters = list(trial.trained.values())
        self.sums = torch.zeros(len(self._parameters), dtype=torch.float64, device=trial.device)
        self.arrived: set[int] = set()
        """Places of the parameters that received a gradient."""

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure each backward inside the context."""
        hooks = [
            parameter.register_hook(partial(self._note, place))  # type: ignore[no-untyped-call]
            for place, parameter in enumerate(self._parameters)
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _note(self, place: int, gradient: Tensor) -> None:
        self.arrived.add(place)
        if gradient.layout == torch.strided:  # Others are refused after the backward.
            self.sums[place] += _norm(gradient)


def _norm(gradient: Tensor) -> Tensor:
    wide = gradient if gradient.dtype.itemsize >= 4 else gradient.float()
    norm: Tensor = torch.linalg.vector_norm(wide).double()
    return norm
