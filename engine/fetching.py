"""From items to micro-batches: samples fetched, augmented, collated and weighed, in this process or in workers.

All of it runs under the seeds of ``engine.randomness.ItemSeeds``, so what a sample's augmentation draws is a function of
(seed, epoch, item), whoever fetches it and in whichever micro-batch.

Not here: which items a micro-batch holds (``engine.loader``, ``engine.evaluation``).
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data._utils.pin_memory import pin_memory

from domain.plan import ceil_div
from engine import randomness

_PR_SET_PDEATHSIG: Final = 1

Item = tuple[int, int]
"""(epoch, index in the dataset)."""
M = TypeVar("M")
"""A micro-batch: whatever the fetcher's ``make`` returns."""


class Fetcher(Dataset[M]):
    """Makes micro-batches out of items; indexed by a list of items, as a worker process does it.

    Parameters
    ----------
    dataset : Dataset
        Map-style. One that has ``__getitems__`` is asked for all items of a micro-batch at once.
    make : callable
        Collates samples, and whatever else is done where they were fetched.
    seed : int
        The job's.
    purpose : int
        ``randomness.ITEM`` or ``randomness.EVAL_ITEM``.
    """

    def __init__(
        self, dataset: Dataset[Any], make: Callable[[list[Any]], M], *, seed: int, purpose: int = randomness.ITEM
    ):
        self._dataset, self._make = dataset, make
        self._seeds = randomness.ItemSeeds(seed, purpose)
        self._several = getattr(dataset, "__getitems__", None)

    def __getitem__(self, items: list[Item]) -> M:
        return self._seeds.fetch(lambda seeded: self._read(items, seeded=seeded))

    def many(self, lists: list[list[Item]]) -> list[M]:
        """Several micro-batches; cheaper than one by one."""
        return self._seeds.fetch(lambda seeded: [self._read(items, seeded=seeded) for items in lists])

    def _read(self, items: list[Item], *, seeded: bool) -> M:
        if seeded:
            return self._make([self._seeded(epoch, index) for epoch, index in items])
        if self._several is not None:
            return self._make(self._several([index for _, index in items]))
        dataset = self._dataset
        return self._make([dataset[index] for _, index in items])

    def _seeded(self, epoch: int, index: int) -> Any:
        self._seeds.seed(epoch, index)
        return self._dataset[index]


def seeded_sample(dataset: Dataset[Any], index: int, *, seed: int) -> Any:
    """The sample that training sees of ``index`` in epoch 0."""
    randomness.seed_host(randomness.seed_of(randomness.ITEM, seed, 0, index))
    return dataset[index]


def micro_batches(
    fetcher: Fetcher[M], slots: Iterable[list[Item]], *, workers: int, ahead: int, pin: bool
) -> Iterator[M]:
    """One micro-batch after the other.

    Parameters
    ----------
    fetcher : Fetcher
    slots : iterable of lists
        The items of each micro-batch.
    workers : int
        Processes; 0 fetches in the calling thread.
    ahead : int
        Micro-batches that the workers together keep ready.
    pin : bool
        Whether batches are put into page-locked memory.
    """
    if not workers:
        return (pinned(fetcher[items]) if pin else fetcher[items] for items in slots)
    loader: DataLoader[M] = DataLoader(
        fetcher,
        batch_size=None,
        collate_fn=_as_it_is,
        sampler=slots,
        num_workers=workers,
        pin_memory=pin,
        worker_init_fn=_WorkerStart(),
        generator=torch.Generator(),  # Its own, or it would draw from the rank's.
        prefetch_factor=max(2, ceil_div(ahead, workers)),
        multiprocessing_context="fork",
    )
    return iter(loader)


def _as_it_is(batch: M) -> M:
    """What torch would otherwise do to a micro-batch that is made already is to turn its arrays into tensors."""
    return batch


def pinned(batch: M) -> M:
    """A batch with its tensors in page-locked memory, from where a copy to the device does not wait."""
    result: M = pin_memory(batch)  # type: ignore[no-untyped-call] # torch has no type for it
    return result


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies; if that has happened already, leave."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


class _WorkerStart:
    """Runs first in each worker process."""

    def __init__(self) -> None:
        self._parent = os.getpid()

    def __call__(self, _worker: int) -> None:
        die_with_parent(self._parent)
        # Ctrl-C reaches the whole process group; the rank ends its workers in order.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
