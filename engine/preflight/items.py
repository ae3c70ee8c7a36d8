"""Check that an item of a dataset is a function of its number and of its epoch.

Some items are fetched under the same seeds in another order, as another worker and after those of
the next epoch. A difference shows a generator of the dataset's own, a worker's number in the item,
a mixture with the item before, or an item that was changed in place. An item that draws at its
first fetch and not later keeps its first augmentation. Only rank 0's warnings are written.

Not here: fetches side by side in workers (``engine.preflight.worker_items``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from torch.utils.data import Dataset
from torch.utils.data._utils import worker

from lockstep.engine.data.fetching import seeded_sample
from lockstep.engine.runtime import randomness
from lockstep.engine.runtime.errors import listed
from lockstep.engine.state.datasets import generators_of
from lockstep.engine.state.values import equal
from lockstep.engine.task.copies import independent
from lockstep.engine.task.interface import Batch

ITEMS: Final = 8
"""Items that are fetched again. With a fair coin in each, all of them agree once in 256 times."""
_EFFECT: Final = "so the run depends on micro_size and on the ranks, and a resumed run is not exact"
_AGAIN: Final = (
    "sample {} of the dataset differs when it is fetched again: it {}, which the engine does not "
    f"seed, {_EFFECT}: call the functions of random, numpy.random or torch, without a generator, "
    "in __getitem__"
)
_ORDER: Final = (
    "sample {} of the dataset differs when it is fetched in another order or as another worker: "
    f"it depends on the samples before it or on get_worker_info(), {_EFFECT}: make it a function "
    "of its index, and of draws from random, numpy.random or torch"
)
_KEPT: Final = (
    "sample {} of the dataset draws random numbers at its first fetch and not later: what it drew "
    f"is kept, {_EFFECT}: draw at each fetch, and keep only what does not depend on the draws"
)
_TOGETHER: Final = (
    "samples of the dataset differ when __getitems__ fetches several at once: they depend on each "
    f"other, {_EFFECT}: make each a function of its index"
)


@dataclass(frozen=True)
class _Fetched:
    """Some items, each collated alone, by index."""

    batches: dict[int, Batch]
    drew: set[int]
    """Items that drew from the generators that the engine seeds."""

    def others(self, again: _Fetched) -> list[int]:
        """Return the items that differ in another fetch."""
        return [i for i, each in again.batches.items() if not equal(self.batches[i], each)]


def fetched_again(
    dataset: Dataset[Any], size: int, collate: Callable[[list[Any]], Batch], *, seed: int
) -> tuple[dict[int, Batch], list[str]]:
    """Return some items, each collated alone, and a warning if they depend on earlier fetches.

    Parameters
    ----------
    dataset : Dataset
    size : int
        Its length.
    collate : callable
        The task's.
    seed : int
        The job's.
    """
    held = generators_of(dataset)
    indices = sorted({0, size // 2, size - 1, *(n * size // ITEMS for n in range(ITEMS))})

    def fetch(order: list[int], *, epoch: int = 0, as_workers: bool = False) -> _Fetched:
        found = _Fetched({}, set())
        for place, index in enumerate(order):
            with _as_worker(dataset, (0, 1, None)[place % 3] if as_workers else None):
                randomness.seed_host(randomness.seed_of(randomness.ITEM, seed, epoch, index))
                before = randomness.host_state()
                sample = seeded_sample(dataset, index, seed=seed, epoch=epoch)
                if randomness.host_state() != before:
                    found.drew.add(index)
            # A copy, because a later fetch may change the item in place.
            found.batches[index] = collate([independent(sample)])
        return found

    first = fetch(indices)
    in_next_epoch = fetch(indices[::-1], epoch=1)
    again = fetch(indices[::-1], as_workers=True)
    others = again.others(first)
    kept = sorted(first.drew - again.drew | first.drew - in_next_epoch.drew)
    if kept:
        warning = _KEPT.format(kept[0])
    elif others:
        generators = [each.name for each in held.changes()]
        if generators:
            source = f"draws from its own generator ({listed(generators)})"
        elif set(fetch(indices).others(fetch(indices))) - {indices[0]}:
            # Twice in the same order, where only the first item comes after another one.
            source = "draws from a separate generator, the clock or the system"
        else:
            source = ""
        text = _AGAIN if source else _ORDER
        warning = text.format(others[0], source)
    elif not first.drew and _differ_together(dataset, first, collate):
        warning = _TOGETHER
    else:
        return first.batches, []
    return first.batches, [warning]


def _differ_together(dataset: Any, known: _Fetched, collate: Callable[[list[Any]], Batch]) -> bool:
    """Return whether items differ where ``__getitems__`` fetches several at once."""
    several = getattr(dataset, "__getitems__", None)
    if several is None:
        return False
    together = several(list(known.batches))
    return any(
        not equal(collate([independent(sample)]), batch)
        for sample, batch in zip(together, known.batches.values(), strict=True)
    )


@contextmanager
def _as_worker(dataset: Dataset[Any], number: int | None) -> Iterator[None]:
    """Let ``torch.utils.data.get_worker_info`` return the number of a worker; None for none."""
    before = worker._worker_info
    worker._worker_info = (
        None
        if number is None
        else worker.WorkerInfo(id=number, num_workers=2, seed=number, dataset=dataset)
    )
    try:
        yield
    finally:
        worker._worker_info = before
