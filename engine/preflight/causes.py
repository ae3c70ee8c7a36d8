"""Likely cause of a loss that is not a sum over samples, found by further comparisons.

In this order, on the same samples:

1. The difference is gone with BatchNorm in eval mode.
2. It is gone with ``lockstep.Dropout`` in eval mode: one layer serves several blocks, or the
   samples have another order.
3. An unlike pair of samples differs and like pairs do not: the number of units, or padding.
4. Four samples differ. With the whole W, the parts g1, g2, g3, and a coarser split into g12 and g3:

   * A mean divides by a count c: c W = c1 g1 + c2 g2 + c3 g3.
   * A term without samples, such as L2, is counted once per part: g1 + g2 + g3 - W is twice g12 +
     g3 - W.
   * A mean with weights is some average: W = a1 g1 + a2 g2 + a3 g3 with a1 + a2 + a3 = 1.
   * The rest makes a sample's contribution depend on the others: in-batch negatives, rankings,
     shared statistics.
5. Four samples agree: the smallest number that differs is named.

Not here: the comparison of the chosen samples (``engine.preflight.additivity_check``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from lockstep.engine.preflight.chosen_samples import numbers_of, without_labels
from lockstep.engine.preflight.comparison import Tolerance, compared
from lockstep.engine.preflight.trial_task import Piece, TrialTask, divided
from lockstep.engine.runtime.errors import listed
from lockstep.engine.task.dropout import Dropout

FOUR: Final = (1, 1, 2)
"""Sizes of the parts of four samples."""
_ENTRIES: Final = 4_096
"""Entries of each parameter's gradient that are related to those of others."""
SUM: Final = (
    "return the sum (reduction='sum'), and return the divisor of the mean from weight(); the "
    "engine divides once, by the weight of the whole batch"
)
"""Correction of a mean."""
_OTHERS: Final = (
    "make the loss of each sample independent of the others, or declare batch_dependent = True in "
    "the task"
)


def cause_of(trial: TrialTask, samples: list[Any], tolerance: Tolerance) -> str:
    """Return the likely cause and its correction, as a clause about the loss.

    For a loss of several terms, the cause of each that is not additive. Modules of the trial are
    left in eval mode.

    Parameters
    ----------
    trial : TrialTask
    samples : list
        Sorted samples that differ when they are computed as one piece and as several.
    tolerance : Tolerance
    """
    search = _Search(trial, samples, tolerance)
    first = ""
    norms = search.trial.set_to_eval(_BatchNorm)
    if norms:
        first = (
            f"depends on the other samples of a micro-batch through BatchNorm ({listed(norms)}): "
            "use GroupNorm, or declare batch_dependent = True in the task"
        )
        if not search.differs(samples):
            return first
    cause = _dropout_cause(search) or _by_term(search)
    return f"{first}; besides, it {cause}" if first else cause


def _by_term(search: _Search) -> str:
    terms = search.trial.names
    if len(terms) == 1:
        return search.cause(None)
    causes: dict[str, list[str]] = {}
    for term in terms:
        if search.differs(search.samples, term=term):
            causes.setdefault(search.cause(term), []).append(term)
    # If no single term is the cause, their combination is.
    return "; and ".join(
        f"in its {'term' if len(names) == 1 else 'terms'} {', '.join(map(repr, names))} {cause}"
        for cause, names in causes.items()
    ) or search.cause(None)


def _dropout_cause(search: _Search) -> str:
    """Return the cause if it is ``lockstep.Dropout``; empty if not."""
    (whole,) = search.uses([search.samples])
    alone = search.uses([[sample] for sample in search.samples])
    dropouts = search.trial.set_to_eval(Dropout)
    if not dropouts or search.differs(search.samples):
        return ""
    uneven = [name for name in whole if any(one[name] != whole[name] for one in alone)]
    if uneven:
        return (
            f"uses one lockstep.Dropout ({listed(uneven)}) for several blocks, which drops "
            "differently at each use, and the uses depend on the other samples: give each block a "
            "module of its own"
        )
    return (
        f"calls lockstep.Dropout ({listed(dropouts)}) with its samples in another order than the "
        "micro-batch's, so a mask belongs to another sample: keep the order of the samples up to "
        "the dropout"
    )


class _Search:
    """Further comparisons of some samples."""

    def __init__(self, trial: TrialTask, samples: list[Any], tolerance: Tolerance):
        self.trial, self.samples = trial, samples
        self._tolerance = tolerance
        self._same = 1e-6 if tolerance.limit < 1e-6 else 1e-2

    def uses(self, pieces: Sequence[list[Any]]) -> list[Counter[str]]:
        """Return the number of calls of each ``lockstep.Dropout`` in the forward of each piece."""
        counts: Counter[str] = Counter()
        hooks = [
            module.register_forward_pre_hook(lambda *_, name=name: counts.update([name]))
            for name, module in self.trial.model.named_modules()
            if isinstance(module, Dropout)
        ]
        found = []
        for samples in pieces:
            counts.clear()
            self.trial.terms(divided(self.trial.task, samples, [len(samples)])[0])
            found.append(counts.copy())
        for hook in hooks:
            hook.remove()
        return found

    def differs(
        self, samples: list[Any], sizes: Sequence[int] | None = None, *, term: str | None = None
    ) -> bool:
        """Return whether samples as one piece differ from pieces, of one sample by default."""
        whole = divided(self.trial.task, samples, [len(samples)])
        parts = divided(self.trial.task, samples, sizes or [1] * len(samples))
        found = compared(self.trial, whole, parts, term)
        return found.worst(self._tolerance.floor).difference > self._tolerance.limit

    def cause(self, term: str | None) -> str:
        """Return the cause of a term, or of the whole loss."""
        count = len(self.samples)
        four = [self.samples[place % count] for place in _four_of(count)]
        relation = _Relation(self.trial, four, FOUR, term, self._same)
        if not relation.finite:
            return "divides by a count that can be zero: " + SUM
        if self._depends_on_lengths(term):
            unlike = [self.samples[0], self.samples[-1]]
            if _Relation(self.trial, unlike, (1, 1), term, self._same).is_mean_times_samples():
                return (
                    "is a mean over the units of the whole micro-batch, such as its tokens, times "
                    f"its samples: {SUM}"
                )
            if self._have_lengths():
                return (
                    "depends for each sample on the longest of its micro-batch: padding reaches "
                    "the samples, so mask it in the model and in the loss"
                )
        if self.differs(four, FOUR, term=term):
            return relation.text()
        return self._from_some_number_on(term)

    def _depends_on_lengths(self, term: str | None) -> bool:
        """Return whether the most unlike pair differs, and pairs with equal numbers do not."""
        first, last = self.samples[0], self.samples[-1]
        numbers = [numbers_of(self.trial.task, sample) for sample in self.samples]
        if numbers[0] == numbers[-1] or not self.differs([first, last], term=term):
            return False
        pairs = [place for place, (one, two) in enumerate(pairwise(numbers)) if one == two]
        like = [[self.samples[place], self.samples[place + 1]] for place in pairs[:2]]
        return not any(self.differs(pair, term=term) for pair in like or [[first] * 2, [last] * 2])

    def _have_lengths(self) -> bool:
        """Return whether the most unlike pair differs in more than labels."""
        pair = (self.samples[0], self.samples[-1])
        first, last = (without_labels(numbers_of(self.trial.task, each)) for each in pair)
        return first != last

    def _from_some_number_on(self, term: str | None) -> str:
        mixed = self.samples[::2] + self.samples[1::2]
        agree, differ = min(4, len(mixed)), len(mixed)
        if not self.differs(mixed, term=term):
            return (
                "depends for each sample on the others in its micro-batch, in some divisions only: "
                + _OTHERS
            )
        while differ - agree > 1:
            middle = (agree + differ) // 2
            if self.differs(mixed[:middle], term=term):
                differ = middle
            else:
                agree = middle
        return (
            f"depends for each sample on the others in its micro-batch, from {differ} samples on "
            f"(a top-k, a quantile, a capacity): {_OTHERS}"
        )


class _Relation:
    """Relation between the gradients of some samples and of their parts."""

    def __init__(
        self,
        trial: TrialTask,
        samples: list[Any],
        sizes: Sequence[int],
        term: str | None,
        same: float,
    ):
        self._trial, self._term, self._same = trial, term, same
        self._samples, self._sizes = samples, sizes
        (self._whole,) = divided(trial.task, samples, [len(samples)])
        self._parts = divided(trial.task, samples, sizes)
        self._whole_vector = self._vector(self._whole)
        self._vectors = [self._vector(part) for part in self._parts]
        self.finite = all(bool(each.isfinite().all()) for each in self._vectors)

    def text(self) -> str:
        """Return the cause, if the four samples differ from their parts."""
        if self._is_mean():
            return "is a mean over the micro-batch: " + SUM
        thrice = torch.stack(self._vectors).sum(0) - self._whole_vector
        coarser, _ = divided(self._trial.task, self._samples, [2, 2])
        twice = self._vector(coarser) + self._vectors[2] - self._whole_vector
        if self._close(thrice, 2 * twice):
            kind = (
                "an L2 penalty on the parameters"
                if self._is_proportional(twice)
                else "a penalty on the parameters"
            )
            return (
                f"has a term that does not depend on the samples, {kind}, which would be added "
                "once per micro-batch: move it to penalty(self, model), which is added once per "
                "step"
            )
        fit = self._fit()
        if fit is not None and abs(math.fsum(fit) - 1) <= self._same:
            return (
                "is a mean with weights over the micro-batch, such as a class-weighted "
                "cross-entropy: return the weighted sum (reduction='sum'), and return the sum of "
                "the weights from weight()"
            )
        return (
            "depends for each sample on the others in its micro-batch (in-batch negatives, a "
            f"ranking, statistics over the samples): {_OTHERS}"
        )

    def is_mean_times_samples(self) -> bool:
        """Return whether the whole is an average of the parts, times its samples."""
        fit = self._fit()
        if fit is None:
            return False
        counted = math.fsum(each * size for each, size in zip(fit, self._sizes, strict=True))
        return abs(counted - len(self._samples)) <= self._same * len(self._samples)

    def _vector(self, piece: Piece) -> Tensor:
        """Return some of the gradient's entries, and the losses."""
        self._trial.forget()
        losses = self._trial.add(piece, term=self._term)
        gradients = [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for parameter in self._trial.trained.values()
        ]
        vector = torch.cat([*(each.flatten()[:_ENTRIES].double() for each in gradients), losses])
        self._trial.forget()
        return vector.cpu()

    def _is_mean(self) -> bool:
        counts: list[tuple[float, ...]] = [tuple(map(float, self._sizes))]
        weights: list[Any] = [self._trial.task.weight(part.batch) for part in self._parts]
        if isinstance(weights[0], dict):
            counts += [tuple(float(weight[term]) for weight in weights) for term in weights[0]]
        else:
            counts.append(tuple(map(float, weights)))
        return any(
            self._close(
                self._whole_vector * sum(count),
                sum(part * c for part, c in zip(self._vectors, count, strict=True)),
            )
            for count in counts
        )

    def _fit(self) -> list[float] | None:
        """Return factors with which the parts add up to the whole; None if there are none."""
        columns = torch.stack(self._vectors, 1)
        sizes = torch.linalg.svdvals(columns)
        if sizes[-1] <= self._same * sizes[0]:
            # The parts are not independent, so almost any factors would fit.
            return None
        fit = torch.linalg.lstsq(columns, self._whole_vector.unsqueeze(1)).solution
        fits = self._close((columns @ fit).squeeze(1), self._whole_vector)
        return fit.flatten().tolist() if fits else None

    def _is_proportional(self, difference: Tensor) -> bool:
        """Return whether a difference is proportional to the parameters where it is not zero."""
        numbers = torch.cat(
            [
                parameter.detach().flatten()[:_ENTRIES].double().cpu()
                for parameter in self._trial.trained.values()
            ]
        )
        difference = difference[: len(numbers)]
        touched = difference.abs() > self._same * difference.abs().max()
        numbers, difference = numbers[touched], difference[touched]
        ratio = (difference @ numbers) / (numbers @ numbers)
        return self._close(difference, ratio * numbers)

    def _close(self, one: Any, other: Any) -> bool:
        largest = max(float(torch.linalg.vector_norm(one)), float(torch.linalg.vector_norm(other)))
        return largest > 0 and float(torch.linalg.vector_norm(one - other)) <= self._same * largest


def _four_of(count: int) -> tuple[int, int, int, int]:
    """Return the places of the two most unlike samples, and of two between."""
    return 0, count - 1, count // 3, max(2 * count // 3, count // 3 + 1)
