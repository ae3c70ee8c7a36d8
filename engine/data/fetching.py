"""Creation of micro-batches from items: fetch, augment, collate and weigh.

Runs in this process or in workers.

Everything runs under the seeds of ``engine.runtime.randomness.ItemSeeds``, so the augmentation of a
sample is a function of (seed, epoch, item), whichever process fetches it and in whichever
micro-batch.

Not here: the items of a micro-batch (``engine.data.loader``, ``engine.loop.evaluation``).
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import queues
from multiprocessing.connection import wait
from multiprocessing.context import ForkContext, ForkProcess
from typing import Any, Final, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data._utils.pin_memory import pin_memory

from lockstep.domain import limits
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.spec.batch import ceil_div
from lockstep.engine.runtime import failure_text, randomness
from lockstep.engine.runtime.errors import EngineError, describe, put_at, reason_of
from lockstep.system import processes

_WORKER_END_SECONDS: Final = 2.0
"""Time for a worker to exit after its message could not be read."""

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
        self,
        dataset: Dataset[Any],
        make: Callable[[list[Any]], M],
        *,
        seed: int,
        purpose: int = randomness.ITEM,
    ):
        self._dataset, self._make = dataset, make
        self._seeds = randomness.ItemSeeds(seed, purpose)
        self._split = _split_of(purpose)
        self._several = getattr(dataset, "__getitems__", None)

    def __getitem__(self, items: list[Item]) -> M:
        return self._seeds.fetch(lambda seeded: self._read(items, seeded=seeded))

    def many(self, lists: list[list[Item]]) -> list[M]:
        """Several micro-batches; cheaper than one by one."""
        return self._seeds.fetch(
            lambda seeded: [self._read(items, seeded=seeded) for items in lists]
        )

    def unseeded(self, lists: list[list[Item]]) -> list[M]:
        """Several micro-batches of items that draw nothing. The generators are left alone."""
        return [self._read(items, seeded=False) for items in lists]

    @property
    def draws(self) -> bool:
        """True once an item has drawn."""
        return self._seeds.draws

    def disturbed(self) -> bool:
        """Return whether other code has drawn since the last fetch, and start to watch again."""
        return self._seeds.disturbed()

    def _read(self, items: list[Item], *, seeded: bool) -> M:
        if seeded:
            return self._make([self._seeded(epoch, index) for epoch, index in items])
        if self._several is not None:
            return self._make(self._all_at_once([index for _, index in items]))
        dataset, samples = self._dataset, []
        try:
            for _, index in items:
                samples.append(dataset[index])
        except Exception as error:
            put_at(error, f"item {index} of dataset({self._split!r})")
            raise
        return self._make(samples)

    def _seeded(self, epoch: int, index: int) -> Any:
        self._seeds.seed(epoch, index)
        return _sample(self._dataset, index, self._split)

    def _all_at_once(self, indices: list[int]) -> list[Any]:
        assert self._several is not None
        try:
            samples: list[Any] = self._several(indices)
        except Exception as error:
            one_of = "item" if len(indices) == 1 else "one of the items"
            put_at(error, f"{one_of} {', '.join(map(str, indices))} of dataset({self._split!r})")
            raise
        return samples


def seeded_sample(
    dataset: Dataset[Any],
    index: int,
    *,
    seed: int,
    purpose: int = randomness.ITEM,
    epoch: int = 0,
) -> Any:
    """Return the sample ``index`` of an epoch, for training or another purpose."""
    randomness.seed_host(randomness.seed_of(purpose, seed, epoch, index))
    return _sample(dataset, index, _split_of(purpose))


def _split_of(purpose: int) -> str:
    return "train" if purpose == randomness.ITEM else "eval"


def _sample(dataset: Dataset[Any], index: int, split: str) -> Any:
    """Return one sample; add the item's index and split to an exception of the dataset."""
    try:
        return dataset[index]
    except Exception as error:
        put_at(error, f"item {index} of dataset({split!r})")
        raise


def micro_batches(
    fetcher: Fetcher[M], micro_batches: Iterable[list[Item]], *, workers: int, ahead: int, pin: bool
) -> Iterator[M]:
    """Yield micro-batches in order.

    Errors of a worker are raised here, with their reason and message.

    Parameters
    ----------
    fetcher : Fetcher
    micro_batches : iterable of lists
        The items of each micro-batch.
    workers : int
        Processes; 0 fetches in the calling thread.
    ahead : int
        Micro-batches that the workers together keep ready.
    pin : bool
        True to put batches into page-locked memory.
    """
    if not workers:
        return (pinned(fetcher[items]) if pin else fetcher[items] for items in micro_batches)
    loader: DataLoader[Any] = DataLoader(
        _InWorker(fetcher),
        batch_size=None,
        collate_fn=_as_it_is,
        sampler=micro_batches,
        num_workers=workers,
        pin_memory=pin,
        worker_init_fn=_WorkerStart(),
        generator=torch.Generator(),  # Its own, or it would draw from the rank's.
        prefetch_factor=max(2, ceil_div(ahead, workers)),
        multiprocessing_context=_WorkerContext(),
    )
    return _received(iter(loader))  # Not inside: the workers are to begin now.


@dataclass(frozen=True)
class _Failed:
    """Error of a worker, sent in place of a micro-batch.

    It is sent as text because some exceptions can be pickled and not unpickled. torch calls the
    exception's type with the whole traceback, which loses the reason and hides the message.
    """

    reason: Reason
    message: str
    traceback: str

    def error(self) -> EngineError:
        """Return the error to raise in the rank.

        The worker's traceback comes last, so the last lines are the user's.
        """
        error = EngineError(self.reason, self.message)
        error.add_note(self.traceback)
        return error


class _InWorker(Dataset[Any]):
    """A fetcher in a worker process."""

    def __init__(self, fetcher: Fetcher[Any]):
        self._fetcher = fetcher

    def __getitem__(self, items: list[Item]) -> Any:
        try:
            return self._fetcher[items]
        except Exception as error:  # noqa: BLE001 - raised again in the rank
            text = failure_text.without_our_frames(error)
            return _Failed(
                reason_of(error), describe(error), text[-limits.TRACEBACK_CHARS_MAX :].rstrip()
            )


_CANNOT_PICKLE: Final = (TypeError, AttributeError, pickle.PicklingError)
"""Errors of pickle for a value that it cannot write."""


class _Results(queues.Queue):  # type: ignore[type-arg] # generic in the stubs alone
    """Queue from the workers to the rank that replaces a value that cannot be sent by the reason.

    A queue pickles in a thread of its own. Python's queue prints the error and drops the value, and
    the rank would wait for it until its stall limit.
    """

    def _on_queue_feeder_error(self, error: Exception, sent: tuple[int, Any]) -> None:
        message = f"a loader worker cannot send a micro-batch to its rank: {describe(error)}"
        reason = reason_of(error)
        if isinstance(error, _CANNOT_PICKLE):
            reason = Reason.BAD_SPEC
            message += (
                "; return tensors, numbers, text or containers of them from the dataset and "
                "collate(), or set loader.workers to 0"
            )
        text = "".join(traceback.format_exception(error))
        self.put((sent[0], _Failed(reason, message, text[-limits.TRACEBACK_CHARS_MAX :].rstrip())))


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage while the process forks: a fork runs code of Python's before its own."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class _Worker(ForkProcess):
    """Process that destroys nothing that it has inherited.

    Its collector would find the rank's garbage: a process group, say, whose destructor waits for
    threads that a fork does not have.
    """

    def start(self) -> None:
        """Fork. No collection runs in the process before :meth:`run`."""
        self._collects = gc.isenabled()
        with without_collections():
            super().start()

    def run(self) -> None:
        """Leave alone what exists by now, and work."""
        gc.freeze()
        if self._collects:
            gc.enable()
        super().run()


class _WorkerContext(ForkContext):
    """Start method ``fork``, with queues that report values that cannot be sent."""

    Process = _Worker

    def Queue(self, maxsize: int = 0) -> queues.Queue[Any]:  # noqa: N802 - multiprocessing's name
        return _Results(maxsize, ctx=self)


def _received(batches: Any) -> Iterator[Any]:
    """Yield the workers' messages, from torch's iterator."""
    while True:
        try:
            made = next(batches)
        except StopIteration:
            return
        except Exception:
            # torch reports little about a worker that is gone, or cannot read its partial message.
            _require_alive(batches._workers)
            raise
        if isinstance(made, _Failed):
            raise made.error()
        yield made


def _require_alive(workers: list[Any]) -> None:
    """Raise how a worker process ended, if one did."""
    with contextlib.suppress(
        RuntimeError
    ):  # torch's handler of SIGCHLD may find it out in the meantime.
        gone = wait([worker.sentinel for worker in workers], _WORKER_END_SECONDS)
        for worker in workers:
            if worker.sentinel in gone:
                worker.join()
    for worker in workers:
        code = worker.exitcode
        if code is not None and code < 0:
            what = f"a loader worker was killed by signal {-code} ({signal.strsignal(-code)})"
            raise EngineError(Reason.KILLED, what)
        if code is not None:
            raise EngineError(Reason.USER_ERROR, f"a loader worker exited with code {code}")


def _as_it_is(batch: M) -> M:
    """Return the micro-batch unchanged. torch's default would convert its arrays to tensors."""
    return batch


def pinned(batch: M) -> M:
    """A batch with its tensors in page-locked memory, for asynchronous copies to the device."""
    result: M = pin_memory(batch)  # type: ignore[no-untyped-call] # torch has no type for it
    return result


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies.

    If that has happened already, leave.
    """
    processes.die_with_parent()
    if os.getppid() != parent:
        os._exit(1)


class _WorkerStart:
    """Runs first in each worker process."""

    def __init__(self) -> None:
        self._parent = os.getpid()

    def __call__(self, _worker: int) -> None:
        die_with_parent(self._parent)
        # Ctrl-C and torchrun's SIGTERM reach the whole process group; the rank ends its workers in
        # order.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
