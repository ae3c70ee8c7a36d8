"""Whether a task's loss is a sum: the question on which the promise about the batch rests (contract C40).

Before the first step, the gradient of four samples at once is compared with the sum of the gradients of three parts of
them, each of one or two samples, on a copy of model and task in float64. If the two differ, the gradient of a batch
would depend on how it is split, and the task is refused with its likely cause, unless it declares ``batch_dependent``.

The causes are told apart by what they do to the whole W, the parts g1, g2, g3, and a coarser split into g12 and g3:

* A mean divides by a count c: c W = c1 g1 + c2 g2 + c3 g3.
* A term without samples, such as L2, is counted once per part: g1 + g2 + g3 - W is twice g12 + g3 - W.
* A mean with weights is some average: W = a1 g1 + a2 g2 + a3 g3 with a1 + a2 + a3 = 1.
* BatchNorm no longer matters when its layers are in eval mode.
* What is left makes a sample's contribution depend on the others: in-batch negatives, rankings, shared statistics.

The cost is that of training on eight samples, in float64. Every rank does it, with the same samples and no
communication, and nothing outside of the copies is changed.

Not here: what becomes of the notes (``engine.assembly``), what the copies are (``engine.stand_in``).
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import Dataset

from domain.outcomes import Reason
from engine import order, randomness
from engine.errors import EngineError, describe
from engine.fetching import seeded_sample
from engine.loader import weights_of
from engine.normalization import refuses_one_sample
from engine.objective import WHOLE
from engine.stand_in import StandIn
from engine.task import Batch, Task

PARTS: Final = (1, 1, 2)
"""Samples in each part. Unequal, so that a mean over samples differs from a mean over parts."""
PARAMETERS_MAX: Final = 300_000_000
"""Models beyond it are not probed: the copy and two gradients would take more than 7 GB on every rank."""
LOOKED_AT_MAX: Final = 64
"""Samples that are fetched to find enough of them with any weight."""
_REFUSED: Final = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Relative difference that is no rounding, by number format. A sum stays below 1e-12 in float64; the rest is for very
deep models."""
_REFUSED_COARSE: Final = 5e-2
"""The same where something is computed in 16 bits, or in TF32."""
_SAME: Final = {torch.float64: 1e-6, torch.float32: 1e-2}
"""Relative difference up to which a cause explains what was measured."""
_ENTRIES: Final = 4_096
"""Entries of each parameter's gradient that are looked at to find the cause."""


@dataclass(frozen=True)
class Probed:
    """What came out for a loss that was not refused."""

    difference: float | None
    """Between whole and parts, relative; None if they were not compared."""
    note: str = ""
    """Why it was not compared, or not in float64."""


def probe(task: Task, model: nn.Module, dataset: Dataset[Any], *, size: int, seed: int, name: str) -> Probed:
    """Refuse a task whose loss is not a sum over samples.

    Parameters
    ----------
    task : Task
    model : nn.Module
        In train mode, on the rank's device, before anything is wrapped around it.
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
        ``bad_spec``: the loss or the weight is not additive; the message has the cause and what to write instead.
    """
    count = sum(parameter.numel() for parameter in model.parameters())
    with randomness.unchanged_generators(next(model.parameters()).device):
        samples = _weighty_samples(task, dataset, size=size, seed=seed)
        if not samples:
            return Probed(
                None,
                f"weight() counts nothing in the first {LOOKED_AT_MAX} samples, so nothing is trained on them and the loss "
                "was not probed: let it count the units that loss() sums over, and look at what masks all of them",
            )
        if task.batch_dependent:
            return Probed(None)
        if len(samples) < sum(PARTS):
            few = f"only {len(samples)} of the first {LOOKED_AT_MAX} samples have any weight"
            return Probed(None, f"the loss was not probed: {few}")
        if count > PARAMETERS_MAX:
            return Probed(None, f"the loss was not probed: {count:,} parameters are more than {PARAMETERS_MAX:,}")
        failed = ""
        for dtype in (torch.float64, torch.float32):
            try:
                return _Comparison(StandIn(task, model, dtype), samples, name).result()
            except EngineError:
                raise
            except Exception as error:  # noqa: BLE001 - a copy may fail where training does not; the warm-up comes next
                failed = describe(error).partition("\n")[0]
        return Probed(None, f"the loss was not probed: on a copy of the model it raised {failed}")


def _weighty_samples(task: Task, dataset: Dataset[Any], *, size: int, seed: int) -> list[Any]:
    """The first few of the run that count for anything: without weight, any loss looks like a sum."""
    found: list[Any] = []
    for _, index in order.samples(0, LOOKED_AT_MAX, size=size, seed=seed):
        sample = seeded_sample(dataset, index, seed=seed)
        weight = task.weight(task.collate([copy.deepcopy(sample)]))  # Some collations change what they are given.
        if any(weights_of(weight, tuple(weight) if isinstance(weight, Mapping) else (WHOLE,))):
            found.append(sample)
        if len(found) == sum(PARTS):
            break
    return found


class _Comparison:
    """The whole against its parts, on one copy."""

    def __init__(self, stand_in: StandIn, samples: list[Any], name: str):
        self._on, self._name = stand_in, name
        first, second = PARTS[0], PARTS[0] + PARTS[1]
        with randomness.Watch(stand_in.device) as watch:
            self._whole = self._counted(samples)
            self._parts = [self._counted(part) for part in (samples[:first], samples[first:second], samples[second:])]
            self._coarse = [self._counted(samples[:second]), self._parts[2]]
        self._collate_draws = watch.drawn

    def _counted(self, samples: list[Any]) -> tuple[Batch, Any]:
        batch = self._on.task.collate(copy.deepcopy(samples))
        return self._on.batch(batch), self._on.task.weight(batch)

    def result(self) -> Probed:
        """What the comparison came to."""
        if self._collate_draws:
            return Probed(None, "the loss was not probed: collate() draws random numbers, which depend on micro_size")
        difference, drawn = self._watched()
        if drawn:
            self._on.settle()
            difference, drawn = self._watched()
        self._require_additive_weights(self._on.names)
        if drawn:
            return Probed(None, "the loss was not probed: it draws random numbers, even in eval mode")
        if difference is None:
            return Probed(None, "the loss was not probed: the gradient of the first samples is zero or not finite")
        coarsest = self._on.dtype
        if difference > _limit(coarsest, self._on.device):
            coarsest = self._on.coarsest(self._whole[0])
        if difference > _limit(coarsest, self._on.device):
            # State outside of the engine, of which the person is warned, and no coupling of the samples.
            if not self._on.repeats(self._whole[0]):
                return Probed(None, "the loss was not probed: the same batch gives another value each time")
            if self._on.draws_by_itself:
                return Probed(None, "the loss was not probed: it draws from a random generator of its own")
            try:
                cause = self._cause()
            except Exception as error:  # noqa: BLE001 - refused all the same: that it is no sum is known by now
                cause = f"is not the sum over its samples: {_SUM} (looking for the cause raised {describe(error)})"
            raise self._refused("loss", f"{cause} (whole against three parts: off by {difference:.2g})")
        name = str(coarsest).removeprefix("torch.")
        return Probed(
            difference, "" if coarsest == torch.float64 else f"the loss was probed to the precision of {name}"
        )

    def _cause(self) -> str:
        """The likely cause, of a loss of several terms for each term that is no sum."""
        terms = self._on.names
        if len(terms) == 1:
            return self._diagnosis(None)
        causes: dict[str, list[str]] = {}
        for term in terms:
            difference = self._difference(term)
            if difference is not None and difference > _limit(self._on.dtype, self._on.device):
                causes.setdefault(self._diagnosis(term), []).append(term)
        # Where no term is off by itself, they are together.
        return "; and ".join(
            f"in its {'term' if len(names) == 1 else 'terms'} {', '.join(map(repr, names))} {cause}"
            for cause, names in causes.items()
        ) or self._diagnosis(None)

    def _diagnosis(self, term: str | None) -> str:
        difference = partial(self._difference, term)
        return _Diagnosis(self._on, self._whole, self._parts, self._coarse, difference=difference, term=term).cause()

    def _watched(self) -> tuple[float | None, bool]:
        """The difference, and whether computing it drew random numbers."""
        with randomness.Watch(self._on.device) as watch:
            difference = self._difference()
        return difference, watch.drawn

    def _difference(self, term: str | None = None) -> float | None:
        """Of whole and parts, relative to the largest of them; None if there is nothing to compare.

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
                parts, losses = self._on.gradient(batch, term)  # Adds to the gradients of the parts before it.
            except ValueError as error:
                if not refuses_one_sample(error):
                    raise
                return math.inf  # BatchNorm without a batch: one sample has no variance.
            sizes.append(_norm(parts))
            parts_losses.append(losses)
        torch._foreach_sub_(whole, parts)  # In place: a third gradient would be the largest thing here.
        off = _norm(whole)
        self._on.forget()
        if not math.isfinite(sizes[0]) or (max(sizes) == 0 and term is None):
            return None
        if not math.isfinite(off):
            return math.inf  # A part divides by nothing where the whole does not.
        losses = torch.stack(parts_losses)
        largest = max(float(whole_losses.abs().max()), float(losses.abs().max()))
        off_losses = float((whole_losses - losses.sum(0)).abs().max())
        return max(off / max(sizes) if off > 0 else 0.0, off_losses / largest if largest > 0 else 0.0)

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
                    f"counts {whole[index]:g}{of} for {sum(PARTS)} samples together, but {total:g} for the same samples "
                    "in three parts: count only what the loss sums over, such as samples, or tokens without padding",
                )

    def _default_weight(self, whole: float, total: float) -> EngineError:
        return EngineError(
            Reason.BAD_SPEC,
            f"{self._name}: without a weight() of the task, the first dimension of the batch's first tensor counts "
            f"the samples, and it is {whole:g} for {sum(PARTS)} samples together but {total:g} for the same samples "
            "in three parts: write weight(self, batch) in the task, which returns how many units loss() sums over, "
            "or let collate() put the samples first",
        )

    def _refused(self, method: str, why: str) -> EngineError:
        """The error, with the place of the method in the person's code."""
        function = inspect.unwrap(getattr(type(self._on.task), method))
        place = ""
        with suppress(OSError, TypeError):
            line = inspect.getsourcelines(function)[1]
            place = f" ({Path(inspect.getsourcefile(function) or '').name}, line {line})"
        return EngineError(Reason.BAD_SPEC, f"{self._name}: {method}(){place} {why}")


class _Diagnosis:
    """Why whole and parts differ."""

    def __init__(
        self,
        on: StandIn,
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
        """The likely cause, and what to write instead."""
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
        """The cause, with the layers in ``norms`` in eval mode."""
        said = ""
        if norms:
            names = ", ".join(norms[:5]) + (f" and {len(norms) - 5} more" if len(norms) > 5 else "")
            said = (
                f"depends on the other samples of a micro-batch through BatchNorm ({names}): use GroupNorm, or declare "
                "batch_dependent = True in the task"
            )
            left = self._difference()
            if left is None or left <= _limit(self._on.dtype, self._on.device):
                return said
        cause = self._of_the_loss()
        return f"{said}; besides, it {cause}" if said else cause

    def _of_the_loss(self) -> str:
        whole = self._vector(self._whole[0])
        parts = [self._vector(batch) for batch, _ in self._parts]
        if not all(bool(part.isfinite().all()) for part in parts):
            return "divides by a count that can be zero: " + _SUM
        if self._is_mean(whole, parts):
            return "is a mean over the micro-batch: " + _SUM
        thrice = sum(parts) - whole
        twice = self._vector(self._coarse[0][0]) + parts[2] - whole
        if self._close(thrice, 2 * twice):
            kind = "an L2 penalty on the parameters" if self._is_proportional(twice) else "a penalty on the parameters"
            return (
                f"has a term that does not depend on the samples, {kind}, which would be added once per micro-batch: "
                "move it to penalty(self, model), which is added once per step"
            )
        if self._is_average(whole, parts):
            return (
                "is a mean with weights over the micro-batch, such as a class-weighted cross-entropy: return the "
                "weighted sum (reduction='sum'), and let weight() return the sum of the weights"
            )
        return (
            "depends for each sample on the others in its micro-batch (in-batch negatives, a ranking, statistics over "
            "the samples): let every sample stand alone, or declare batch_dependent = True in the task"
        )

    def _vector(self, batch: Batch) -> Tensor:
        """Some of the gradient's entries, and the losses."""
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
            self._close(whole * sum(count), sum(part * c for part, c in zip(parts, count, strict=True)))
            for count in counts
        )

    def _is_average(self, whole: Tensor, parts: list[Tensor]) -> bool:
        columns = torch.stack([part.cpu() for part in parts], 1)
        sizes = torch.linalg.svdvals(columns)
        if sizes[-1] <= self._same * sizes[0]:
            return False  # Some part says nothing of its own, and almost anything would fit.
        fit = torch.linalg.lstsq(columns, whole.cpu().unsqueeze(1)).solution
        fits = self._close((columns @ fit).squeeze(1), whole.cpu())
        return fits and abs(float(fit.sum()) - 1) <= self._same

    def _is_proportional(self, difference: Tensor) -> bool:
        """Whether a difference of gradients is the parameters times a number, wherever it is not zero."""
        parameters = [parameter.detach().flatten()[:_ENTRIES].double() for parameter in self._on.parameters()]
        numbers = torch.cat(parameters)
        difference = difference[: len(numbers)]
        touched = difference.abs() > self._same * difference.abs().max()
        numbers, difference = numbers[touched], difference[touched]
        ratio = (difference @ numbers) / (numbers @ numbers)
        return self._close(difference, ratio * numbers)

    def _close(self, one: Any, other: Any) -> bool:
        largest = max(float(torch.linalg.vector_norm(one)), float(torch.linalg.vector_norm(other)))
        return largest > 0 and float(torch.linalg.vector_norm(one - other)) <= self._same * largest


_SUM: Final = (
    "return the sum (reduction='sum'), and let weight() count what the mean divides by; the engine divides once, by the "
    "weight of the whole batch"
)


def _limit(dtype: torch.dtype, device: torch.device) -> float:
    """The relative difference that is no rounding any more."""
    if device.type == "cuda" and dtype == torch.float32:
        return _REFUSED_COARSE  # Convolutions are in TF32 by default.
    return _REFUSED.get(dtype, _REFUSED_COARSE)


def _norm(gradient: list[Tensor]) -> float:
    """2-norm over all tensors."""
    return float(torch.linalg.vector_norm(torch.stack(list(_norms(gradient)))))


def _norms(gradient: list[Tensor]) -> Iterator[Tensor]:
    for each in gradient:
        yield torch.linalg.vector_norm(each).double().cpu()
