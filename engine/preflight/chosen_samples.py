"""Choice of the samples for the additivity check, and their two divisions into pieces.

The check requires that the gradient of a batch is the sum of the gradients of its pieces
(``engine.preflight.additivity_check``).

The first samples of the run are scanned. Half of the chosen ones are the first with weight, the
others are as unlike as possible: each is the farthest from those chosen before (k-center), by
numbers on which an influence of one sample on another's loss may depend: weights, lengths, zeros,
ignored targets, labels. The chosen samples are sorted by these numbers. Division A is one piece, in
which unlike samples meet. The pieces of division B hold neighbours, so short samples are padded to
short ones.

Not here: the gradients and losses of the pieces (``engine.preflight.comparison``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from lockstep.engine.data import order
from lockstep.engine.data.fetching import seeded_sample
from lockstep.engine.data.loader import weights_of
from lockstep.engine.model.objective import WHOLE
from lockstep.engine.task.copies import independent
from lockstep.engine.task.interface import Batch, Task

SCANNED_MAX: Final = 64
"""Samples of the run that are fetched at most, to choose from."""
SCAN_SECONDS_MAX: Final = 2.0
"""No further sample is fetched after this time, if ``SCANNED_MIN`` are there."""
SCANNED_MIN: Final = 4
CHOSEN: Final = 16
CHOSEN_MAX: Final = 32
"""Limit for a run whose micro-batch is larger than ``CHOSEN``: a loss may drop its largest terms
from 20 samples on, for example."""
_WEIGHT: Final = "weight "
_VALUE: Final = " value"


@dataclass(frozen=True)
class Scanned:
    """One of the first samples of the run."""

    index: int
    """In the dataset."""
    sample: Any
    numbers: dict[str, float]
    """Result of ``numbers_of``."""

    @property
    def has_weight(self) -> bool:
        """False if its weight is 0."""
        return any(each for name, each in self.numbers.items() if name.startswith(_WEIGHT))


def number_of_samples(batch: int, micro_size: int | str) -> int:
    """Return the number of samples to compare, from 2 to ``CHOSEN_MAX``.

    Parameters
    ----------
    batch : int
        Samples in a step, at least 2.
    micro_size : int or "auto"
        Samples in a micro-batch as the spec states them.
    """
    stated = micro_size if isinstance(micro_size, int) else 0
    return min(batch, max(CHOSEN, stated), CHOSEN_MAX)


def scan(
    task: Task, dataset: Dataset[Any], *, size: int, seed: int, most: int = SCANNED_MAX
) -> list[Scanned]:
    """Fetch the first samples of the run, ``most`` at most, those with weight first."""
    found = list(_scanned(task, dataset, size=size, seed=seed, most=most))
    return sorted(found, key=lambda each: not each.has_weight)


def first_with_weight(task: Task, dataset: Dataset[Any], *, size: int, seed: int) -> Scanned:
    """Return the first sample of ``scan``, without the samples behind it."""
    without = None
    for each in _scanned(task, dataset, size=size, seed=seed, most=SCANNED_MAX):
        if each.has_weight:
            return each
        without = without or each
    assert without is not None, "a dataset has a sample"
    return without


def _scanned(
    task: Task, dataset: Dataset[Any], *, size: int, seed: int, most: int
) -> Iterator[Scanned]:
    """Yield the first samples of the run as they are fetched."""
    until = time.monotonic() + SCAN_SECONDS_MAX
    for count, (_, index) in enumerate(order.samples(0, min(size, most), size=size, seed=seed)):
        if count >= SCANNED_MIN and time.monotonic() > until:
            break
        sample = seeded_sample(dataset, index, seed=seed)
        yield Scanned(index, sample, numbers_of(task, sample))


def numbers_of(task: Task, sample: Any) -> dict[str, float]:
    """Return numbers of a sample on which an influence may depend, by their origin."""
    # A copy, because some collate functions change their arguments.
    batch = task.collate([independent(sample)])
    weight = task.weight(batch)
    weights = weights_of(weight, tuple(weight) if isinstance(weight, Mapping) else (WHOLE,))
    numbers = {f"{_WEIGHT}{place}": each for place, each in enumerate(weights)}
    return numbers | dict(_numbers(batch, ""))


def without_labels(numbers: dict[str, float]) -> dict[str, float]:
    """Return the numbers of a sample without those of single values: labels, indices."""
    single = {name.removesuffix(_VALUE) for name in numbers if name.endswith(_VALUE)}
    return {name: each for name, each in numbers.items() if name.rpartition(" ")[0] not in single}


def _numbers(batch: Batch, place: str) -> Iterator[tuple[str, float]]:
    """Yield numbers of each tensor of a batch of one sample, with their place."""
    if isinstance(batch, Tensor):
        yield f"{place} entries", float(batch.numel())
        if batch.dtype == torch.bool or batch.layout != torch.strided:
            return
        yield f"{place} zeros", float((batch == 0).sum())
        if not (batch.is_floating_point() or batch.is_complex()):
            yield f"{place} negative", float((batch < 0).sum())
            if batch.numel() == 1:
                yield f"{place}{_VALUE}", float(batch)
        return
    if isinstance(batch, Mapping | list | tuple):
        entries = batch.items() if isinstance(batch, Mapping) else enumerate(batch)
        for key, each in entries:
            yield from _numbers(each, f"{place}.{key}")


def chosen(scanned: list[Scanned], count: int) -> list[Scanned]:
    """Return ``count`` of the samples or all of them, sorted; a single one twice."""
    if len(scanned) == 1:
        return scanned * 2
    features = _features(scanned)
    count = min(count, len(scanned))
    taken = list(range(-(-count // 2)))
    while len(taken) < count:
        distances = np.linalg.norm(features[:, None] - features[None, taken], axis=2).min(1)
        distances[taken] = -1.0
        taken.append(int(distances.argmax()))
    ranks = features.sum(1)
    return [scanned[place] for place in sorted(taken, key=lambda place: (ranks[place], place))]


def _features(scanned: list[Scanned]) -> NDArray[np.float64]:
    """Return the numbers of each sample, scaled to [0, 1], of shape (samples, numbers)."""
    names = sorted({name for each in scanned for name in each.numbers})
    table = np.array([[each.numbers.get(name, 0.0) for name in names] for each in scanned])
    low, high = table.min(0), table.max(0)
    scaled: NDArray[np.float64] = (table - low) / np.where(high > low, high - low, 1.0)
    return scaled


def sizes(count: int) -> list[int]:
    """Return the sizes of the pieces of division B.

    From three samples on, not all are equal: with equal sizes, a wrong mean of the pieces' means
    equals the mean over the samples.
    """
    if count < 5:
        first = [1] * (count // 2)
        return [*first, count - len(first)]
    middle = count - 3
    larger = -(-3 * middle // 5)
    return [each for each in (1, 1, larger, middle - larger, 1) if each]
