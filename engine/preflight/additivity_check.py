"""Additivity check of a task's loss, the condition of the promise about the batch (contract C40).

Before the first step, the gradient of four samples at once is compared with the sum of the
gradients of three parts of them, each of one or two samples, on a copy of model and task in
float64. If the two differ, the gradient of a batch would depend on its split, and the task is
refused with its likely cause, unless it declares ``batch_dependent``.

State is no cause: the copy is restored between its calls, and a loss that still returns another
value for the same batch is not judged (``engine.preflight.repeatability`` warns of it).

The cost is that of training on eight samples, in float64. Every rank does it, with the same samples
and no communication, and nothing outside of the copies is changed.

Not here: the use of the notes (``engine.loop.assembly``), the copies
(``engine.preflight.probe_copy``), the cause (``engine.preflight.diagnosis``).
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from lockstep.domain.life.outcomes import Reason
from lockstep.engine.data import order
from lockstep.engine.data.fetching import seeded_sample
from lockstep.engine.data.loader import weights_of
from lockstep.engine.model.normalization import refuses_one_sample
from lockstep.engine.model.objective import WHOLE
from lockstep.engine.preflight.diagnosis import PARTS, SUM, Diagnosis, limit
from lockstep.engine.preflight.probe_copy import ProbeCopy
from lockstep.engine.runtime import randomness
from lockstep.engine.runtime.errors import EngineError, describe
from lockstep.engine.task.interface import Batch, Task

PARAMETERS_MAX: Final = 300_000_000
"""Size limit for the check: the copy and two gradients of a larger model would take more than 7 GB
on every rank."""
LOOKED_AT_MAX: Final = 64
"""Samples that are fetched to find enough samples with weight."""


@dataclass(frozen=True)
class AdditivityResult:
    """Result for a loss that was not refused."""

    difference: float | None
    """Relative difference between whole and parts; None if they were not compared."""
    note: str = ""
    """Reason why they were not compared, or not in float64."""


def probe(
    task: Task, model: nn.Module, dataset: Dataset[Any], *, size: int, seed: int, name: str
) -> AdditivityResult:
    """Refuse a task whose loss is not a sum over samples.

    Parameters
    ----------
    task : Task
    model : nn.Module
        In train mode, on the rank's device, before it is wrapped.
    dataset : Dataset
        The train split.
    size : int
        Its length.
    seed : int
        The job's seed.
    name : str
        ``train.task`` of the spec.

    Raises
    ------
    EngineError
        ``bad_spec``: the loss or the weight is not additive; the message has the cause and a
        correction.
    """
    count = sum(parameter.numel() for parameter in model.parameters())
    with randomness.unchanged_generators(next(model.parameters()).device):
        samples = _weighty_samples(task, dataset, size=size, seed=seed)
        if not samples:
            return AdditivityResult(
                None,
                f"weight() is 0 for the first {LOOKED_AT_MAX} samples, so they do not contribute "
                "to training and the loss was not checked: weight() must count the units that "
                "loss() sums over; check which mask removes all of them",
            )
        if task.batch_dependent:
            return AdditivityResult(None)
        if len(samples) < sum(PARTS):
            few = f"only {len(samples)} of the first {LOOKED_AT_MAX} samples have a weight above 0"
            return AdditivityResult(None, f"the loss was not checked: {few}")
        if count > PARAMETERS_MAX:
            return AdditivityResult(
                None,
                f"the loss was not checked: {count:,} parameters are more than {PARAMETERS_MAX:,}",
            )
        failed = ""
        for dtype in (torch.float64, torch.float32):
            try:
                return _Comparison(ProbeCopy(task, model, dtype), samples, name).result()
            except EngineError:
                raise
            except Exception as error:  # noqa: BLE001 - a copy may fail where training does not; the warm-up comes next
                failed = describe(error).partition("\n")[0]
        return AdditivityResult(
            None, f"the loss was not checked: on a copy of the model it raised {failed}"
        )


def _weighty_samples(task: Task, dataset: Dataset[Any], *, size: int, seed: int) -> list[Any]:
    """Return the first samples of the run that have a weight.

    Without weight, any loss appears additive.
    """
    found: list[Any] = []
    for _, index in order.samples(0, LOOKED_AT_MAX, size=size, seed=seed):
        sample = seeded_sample(dataset, index, seed=seed)
        weight = task.weight(
            task.collate([copy.deepcopy(sample)])
        )  # Some collate functions change their arguments.
        if any(weights_of(weight, tuple(weight) if isinstance(weight, Mapping) else (WHOLE,))):
            found.append(sample)
        if len(found) == sum(PARTS):
            break
    return found


class _Comparison:
    """Comparison of the whole with its parts, on one copy."""

    def __init__(self, copy_: ProbeCopy, samples: list[Any], name: str):
        self._on, self._name = copy_, name
        first, second = PARTS[0], PARTS[0] + PARTS[1]
        with randomness.DrawDetector(copy_.device) as watch:
            self._whole = self._counted(samples)
            self._parts = [
                self._counted(part)
                for part in (samples[:first], samples[first:second], samples[second:])
            ]
            self._coarse = [self._counted(samples[:second]), self._parts[2]]
        self._collate_draws = watch.drawn

    def _counted(self, samples: list[Any]) -> tuple[Batch, Any]:
        batch = self._on.task.collate(copy.deepcopy(samples))
        return self._on.batch(batch), self._on.task.weight(batch)

    def result(self) -> AdditivityResult:
        """Return the result of the comparison."""
        if self._collate_draws:
            return AdditivityResult(
                None,
                "the loss was not checked: collate() draws random numbers, which depend on "
                "micro_size",
            )
        difference, drawn = self._watched()
        if drawn:
            self._on.settle()
            difference, drawn = self._watched()
        self._require_additive_weights(self._on.names)
        if drawn:
            return AdditivityResult(
                None, "the loss was not checked: it draws random numbers, even in eval mode"
            )
        if difference is None:
            return AdditivityResult(
                None,
                "the loss was not checked: the gradient of the first samples is zero or not finite",
            )
        coarsest = self._on.dtype
        if difference > limit(coarsest, self._on.device):
            coarsest = self._on.coarsest(self._whole[0])
        if difference > limit(coarsest, self._on.device):
            # The cause is state outside of the engine, which has a warning of its own, and not a
            # coupling of the samples.
            if not self._on.repeats(self._whole[0]):
                return AdditivityResult(
                    None,
                    "the loss was not checked: the same batch gives a different value each time",
                )
            if self._on.draws_by_itself:
                return AdditivityResult(
                    None, "the loss was not checked: it draws from a random generator of its own"
                )
            try:
                cause = self._cause()
            except Exception as error:  # noqa: BLE001 - the loss is refused without a cause, too
                cause = (
                    f"is not the sum over its samples: {SUM} (the search for the cause raised "
                    f"{describe(error)})"
                )
            raise self._refused(
                "loss", f"{cause} (difference between the whole and three parts: {difference:.2g})"
            )
        name = str(coarsest).removeprefix("torch.")
        return AdditivityResult(
            difference,
            "" if coarsest == torch.float64 else f"the loss was checked to the precision of {name}",
        )

    def _cause(self) -> str:
        """Return the likely cause.

        For a loss of several terms, the cause of each that is not additive.
        """
        terms = self._on.names
        if len(terms) == 1:
            return self._diagnosis(None)
        causes: dict[str, list[str]] = {}
        for term in terms:
            difference = self._difference(term)
            if difference is not None and difference > limit(self._on.dtype, self._on.device):
                causes.setdefault(self._diagnosis(term), []).append(term)
        # If no single term is the cause, their combination is.
        return "; and ".join(
            f"in its {'term' if len(names) == 1 else 'terms'} {', '.join(map(repr, names))} {cause}"
            for cause, names in causes.items()
        ) or self._diagnosis(None)

    def _diagnosis(self, term: str | None) -> str:
        difference = partial(self._difference, term)
        return Diagnosis(
            self._on, self._whole, self._parts, self._coarse, difference=difference, term=term
        ).cause()

    def _watched(self) -> tuple[float | None, bool]:
        """Return the difference, and whether its computation drew random numbers."""
        with randomness.DrawDetector(self._on.device) as watch:
            difference = self._difference()
        return difference, watch.drawn

    def _difference(self, term: str | None = None) -> float | None:
        """Return the difference of whole and parts, relative to the largest of them.

        None if there is nothing to compare.

        Parameters
        ----------
        term : str, optional
            The only term of the loss that is compared.
        """
        self._on.forget()
        whole, whole_losses = self._on.gradient(self._whole[0], term)
        sizes = [_norm(whole)]
        self._on.forget()
        parts_losses: list[Tensor] = []
        parts: list[Tensor] = []
        for batch, _ in self._parts:
            try:
                parts, losses = self._on.gradient(
                    batch, term
                )  # Adds to the gradients of the earlier parts.
            except ValueError as error:
                if not refuses_one_sample(error):
                    raise
                return math.inf  # BatchNorm of a single sample, which has no variance.
            sizes.append(_norm(parts))
            parts_losses.append(losses)
        torch._foreach_sub_(
            whole, parts
        )  # In place: a third gradient would be the largest allocation here.
        off = _norm(whole)
        self._on.forget()
        if not math.isfinite(sizes[0]) or (max(sizes) == 0 and term is None):
            return None
        if not math.isfinite(off):
            return math.inf  # A part divides by zero where the whole does not.
        losses = torch.stack(parts_losses)
        largest = max(float(whole_losses.abs().max()), float(losses.abs().max()))
        off_losses = float((whole_losses - losses.sum(0)).abs().max())
        return max(
            off / max(sizes) if off > 0 else 0.0, off_losses / largest if largest > 0 else 0.0
        )

    def _require_additive_weights(self, terms: tuple[str, ...]) -> None:
        whole = weights_of(self._whole[1], terms)
        parts = [weights_of(weight, terms) for _, weight in self._parts]
        for index, term in enumerate(terms):
            total = math.fsum(weights[index] for weights in parts)
            if not math.isclose(total, whole[index], rel_tol=1e-6, abs_tol=1e-9):
                of = f" of the term {term!r}" if isinstance(self._whole[1], dict) else ""
                if type(self._on.task).weight is Task.weight:
                    raise self._default_weight(whole[index], total)
                raise self._refused(
                    "weight",
                    f"counts {whole[index]:g}{of} for {sum(PARTS)} samples together, but "
                    f"{total:g} for the same samples in three parts: count only the units that "
                    "the loss sums over, such as samples, or tokens without padding",
                )

    def _default_weight(self, whole: float, total: float) -> EngineError:
        return EngineError(
            Reason.BAD_SPEC,
            f"{self._name}: without a weight() of the task, the first dimension of the batch's "
            f"first tensor counts the samples, and it is {whole:g} for {sum(PARTS)} samples "
            f"together but {total:g} for the same samples in three parts: write weight(self, "
            "batch) in the task, which returns the number of units that loss() sums over, or put "
            "the samples first in collate()",
        )

    def _refused(self, method: str, why: str) -> EngineError:
        """Return the error, with the location of the method in the user's code."""
        function = inspect.unwrap(getattr(type(self._on.task), method))
        place = ""
        with suppress(OSError, TypeError):
            line = inspect.getsourcelines(function)[1]
            place = f" ({Path(inspect.getsourcefile(function) or '').name}, line {line})"
        return EngineError(Reason.BAD_SPEC, f"{self._name}: {method}(){place} {why}")


def _norm(gradient: list[Tensor]) -> float:
    """2-norm over all tensors."""
    return float(torch.linalg.vector_norm(torch.stack(list(_norms(gradient)))))


def _norms(gradient: list[Tensor]) -> Iterator[Tensor]:
    for each in gradient:
        yield torch.linalg.vector_norm(each).double().cpu()
