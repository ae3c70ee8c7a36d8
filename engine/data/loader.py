"""Loader of this rank's micro-batches of each batch, fetched in advance.

``engine.data.order`` and ``domain.training.plan`` define the samples of batch t. A rank computes
its own micro-batches, so ranks share no sampler state and a run that starts at step 10,000 starts
at once. Samples are fetched

* inline, if that is fast, or if the model or the samples draw from the host's generators
  (``engine.runtime.randomness``): when the batch is needed, or earlier while the rank waits for
  the gradients of others;
* otherwise by a thread of the rank during the step before. A thread costs a hand-over and competes
  for the interpreter's lock, so tiny samples are slower with one than without. Two that draw at the
  same time would get numbers that depend on the time, so the first draw ends the thread;
* or by ``loader.workers`` processes. They die with their rank.

Not here: collation of items (``engine.data.fetching``), evaluation's batches
(``engine.loop.evaluation``).
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

from torch.utils.data import Dataset

from lockstep.domain.spec.batch import ceil_div
from lockstep.domain.training.plan import BatchPlan
from lockstep.engine.data import order
from lockstep.engine.data.fetching import Fetcher, Item, micro_batches, pinned
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.task.interface import Batch, Task

_THREAD_END_SECONDS: Final = 1.0
"""Time that a closing loader waits for the current item; the thread is a daemon and ends with the
process."""
_IN_LINE_SECONDS: Final = 2e-3
_IN_LINE_TRIES: Final = 8
"""Once so many batches in a row took longer than this to fetch, a thread fetches: one alone may be
the machine's fault."""

Made = tuple[Batch, int, tuple[float, ...]]
"""A micro-batch, its samples, and its units of each loss term."""


@dataclass(frozen=True)
class MicroBatch:
    """One micro-batch of this rank, on the host."""

    batch: Batch
    samples: int
    """0 for an empty micro-batch, whose batch is one masked sample."""
    weights: tuple[float, ...]
    """Units of each loss term; all zero for an empty micro-batch."""
    position: int
    """Offset of its first sample in the whole batch; the samples of a micro-batch are
    consecutive."""


@dataclass(frozen=True)
class RankBatch:
    """Micro-batches of one batch on this rank."""

    step: int
    """Counted from 0."""
    size: int
    """Samples of the whole batch, over all ranks."""
    micro_batches: list[MicroBatch]

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """Units of each loss term in this rank's shard."""
        return tuple(
            math.fsum(parts)
            for parts in zip(
                *(micro_batch.weights for micro_batch in self.micro_batches), strict=True
            )
        )


@dataclass(frozen=True)
class RunLength:
    """Length of a run in steps and in samples."""

    steps: int
    samples: int

    @classmethod
    def of(
        cls, *, steps: int | None, epochs: int | None, dataset_size: int, batch_size: int
    ) -> RunLength:
        """Steps as asked for, or as many as the epochs need; then the last batch may be smaller."""
        if steps is not None:
            return cls(steps, steps * batch_size)
        samples = (epochs or 0) * dataset_size
        return cls(ceil_div(samples, batch_size), samples)

    def batch_size(self, plan: BatchPlan, step: int) -> int:
        """Samples of batch ``step``, counted from 0."""
        return min(plan.batch_size, self.samples - step * plan.batch_size)

    def repeated(self, plan: BatchPlan, dataset_size: int) -> str:
        """Return the effect of a dataset that is smaller than the batch, as a clause."""
        if self.samples <= dataset_size:
            return f"the only step has {self.samples:,} samples"
        return f"each step repeats samples, {plan.batch_size / dataset_size:.3g} times on average"


def weights_of(weight: float | Mapping[str, float], terms: tuple[str, ...]) -> tuple[float, ...]:
    """A task's weight as one number per loss term, checked."""
    if not isinstance(weight, float) and isinstance(weight, Mapping):
        if set(weight) != set(terms):
            raise BadSpecError(
                f"weight() names the terms {sorted(weight)}, but loss() returns "
                f"{sorted(terms)}: both must have the same names",
            )
        weights = tuple(float(weight[term]) for term in terms)
    else:
        try:
            weights = (float(weight),) * len(terms)
        except (
            TypeError,
            ValueError,
            RuntimeError,
        ):  # A tensor of several numbers is a ValueError or a RuntimeError.
            what = "None (missing return statement?)" if weight is None else repr(weight)
            raise BadSpecError(f"weight() must return a number, got {what}") from None
    if not all(math.isfinite(value) and value >= 0 for value in weights):
        raise BadSpecError(f"weight() must return 0 or more, got {weight!r}")
    return weights


class _Collated:
    """Collates and weighs where the samples were fetched, so that a worker process does both."""

    def __init__(self, task: Task, terms: tuple[str, ...]):
        self._task, self._terms = task, terms

    def __call__(self, samples: list[Any]) -> Made:
        batch = self._task.collate(samples)
        return batch, len(samples), weights_of(self._task.weight(batch), self._terms)


class _Planned:
    """Items of each of this rank's non-empty micro-batches, step after step, in O(1) memory."""

    def __init__(
        self,
        plan: BatchPlan,
        length: RunLength,
        *,
        rank: int,
        dataset_size: int,
        seed: int,
        first_step: int,
    ):
        self._plan, self._length, self._rank = plan, length, rank
        self._size, self._seed, self._first_step = dataset_size, seed, first_step
        self._bounds: dict[int, list[tuple[int, int]]] = {}

    def __iter__(self) -> Iterator[list[Item]]:
        for step in range(self._first_step, self._length.steps):
            yield from self.micro_batches(step)

    def micro_batches(self, step: int) -> list[list[Item]]:
        """Return the items of each non-empty micro-batch of one step."""
        origin = step * self._plan.batch_size
        return [
            order.samples(origin + start, origin + stop, size=self._size, seed=self._seed)
            for start, stop in self.bounds(step)
            if start < stop
        ]

    def bounds(self, step: int) -> list[tuple[int, int]]:
        """Return start and end of each micro-batch of one step; equal for an empty one."""
        size = self._length.batch_size(self._plan, step)
        if size not in self._bounds:  # All batches have one size, but for the last.
            self._bounds[size] = self._plan.micro_batches(self._rank, size)
        return self._bounds[size]


class Batches:
    """This rank's batches in order, one at a time.

    ``request`` the next, ``take`` it when it is needed.

    Between a ``take`` and the next ``request`` nothing is fetched by the thread, so evaluation may
    use the host's generators then. Code that draws between a ``request`` and the ``take`` is the
    model's, unless an item drew in the thread: ``drawn`` is then true, and the step is to be run
    again after :meth:`stay_in_line`.
    """

    def __init__(
        self,
        task: Task,
        dataset: Dataset[Any],
        plan: BatchPlan,
        length: RunLength,
        *,
        rank: int,
        dataset_size: int,
        seed: int,
        first_step: int,
        workers: int,
        terms: tuple[str, ...],
        masked: Batch,
        in_line: bool,
        pin: bool,
    ):
        self._fetcher = Fetcher(dataset, _Collated(task, terms), seed=seed)
        self._length, self._rank, self._dataset_size, self._seed = length, rank, dataset_size, seed
        self._workers, self._in_line, self._pin = workers, in_line, pin
        self._empty: Made = (masked, 0, (0.0,) * len(terms))
        self._slow = 0
        self.drawn = False
        """True if the model may have drawn from the host's generators since the last request."""
        self._unclear = False
        """True if an item in the thread may have drawn instead."""
        self._ready: RankBatch | Exception | None = None
        self._thread: _Ahead | None = None
        self._from_workers: Iterator[Made] | None = None
        self.replan(plan, first_step)

    def replan(self, plan: BatchPlan, step: int) -> None:
        """Continue at ``step`` with another split of the same batches.

        Batches fetched in advance are discarded.
        """
        self.close(seconds=None)  # The current fetch uses the generators that the next fetch seeds.
        self._plan, self._next_step, self._ready = plan, step, None
        self._planned = _Planned(
            plan,
            self._length,
            rank=self._rank,
            dataset_size=self._dataset_size,
            seed=self._seed,
            first_step=step,
        )
        if self._workers:
            ahead = plan.accumulation_steps or 1
            self._from_workers = micro_batches(
                self._fetcher, self._planned, workers=self._workers, ahead=ahead, pin=self._pin
            )

    def request(self) -> None:
        """Begin to fetch the next batch, if there is one."""
        self._fetcher.disturbed()  # By an evaluation or the optimizer.
        waits = self._ready is None and self._next_step < self._length.steps
        if self._thread is not None and waits:
            self._thread.request()

    def take(self) -> RankBatch | None:
        """The next batch, waiting for it; None after the last."""
        if self._next_step >= self._length.steps:
            self._watch()
            return None
        if self._thread is not None and self._ready is None:
            self._thread.request()
        self.wait()
        self.fetch()
        ready, self._ready = self._ready, None
        if isinstance(ready, Exception):
            raise ready
        self._next_step += 1
        return ready

    def wait(self) -> None:
        """Wait for the batch that the thread fetches, if it does."""
        if self._thread is None or not self._thread.is_busy:
            return
        self._ready = self._thread.take()
        if self._watch():  # The thread may have fetched what depends on draws of the model.
            self._end_thread()
            self._ready, self._unclear = None, True

    def fetch(self) -> None:
        """Fetch the next batch inline, if it is to be and is not there yet.

        ``take`` raises the error of a failed fetch.
        """
        if self._thread is None and self._ready is None and self._next_step < self._length.steps:
            self._watch()
            try:
                self._ready = self._fetch_in_line()
            except Exception as error:  # noqa: BLE001 - raised by take()
                self._ready = error

    def stay_in_line(self) -> None:
        """Fetch no more in a thread: the model is seeded for each micro-batch from here on."""
        self._in_line, self.drawn = True, False

    def _watch(self) -> bool:
        """Return whether something drew since the last request, and note it."""
        found = not (self._in_line or self._workers) and self._fetcher.disturbed()
        self.drawn |= found
        return found

    @property
    def model_drew(self) -> bool:
        """True if the draws were the model's for sure."""
        return self.drawn and not (self._unclear and self._fetcher.draws)

    def close(self, seconds: float | None = _THREAD_END_SECONDS) -> None:
        """Stop the thread or the worker processes.

        Wait up to ``seconds`` for the thread's current fetch; None waits until its end.
        """
        self._end_thread(seconds)
        self._from_workers = None

    def _end_thread(self, seconds: float | None = None) -> None:
        if self._thread is not None:
            self._thread.close(seconds)
        self._thread = None

    def _fetch_in_line(self) -> RankBatch:
        began = time.perf_counter()
        batch = self._fetch()
        self._slow = self._slow + 1 if time.perf_counter() - began > _IN_LINE_SECONDS else 0
        waits = self._slow >= _IN_LINE_TRIES and not (self._in_line or self._workers)
        if waits and not (self._fetcher.draws or self.drawn):
            self._thread = _Ahead(partial(self._fetch, self._fetcher.unseeded))
        return batch

    def _fetch(self, many: Callable[[list[list[Item]]], list[Made]] | None = None) -> RankBatch:
        step = self._next_step
        made = iter(self._made(step, many or self._fetcher.many))
        micro_batches = []
        for start, stop in self._planned.bounds(step):
            batch, samples, weights = next(made) if start < stop else self._empty
            micro_batches.append(MicroBatch(batch, samples, weights, position=start))
        return RankBatch(step, self._length.batch_size(self._plan, step), micro_batches)

    def _made(self, step: int, many: Callable[[list[list[Item]]], list[Made]]) -> list[Made]:
        micro_batches = self._planned.micro_batches(step)
        if self._from_workers is not None:
            return [next(self._from_workers) for _ in micro_batches]
        made = many(micro_batches)
        return (
            [(pinned(batch), samples, weights) for batch, samples, weights in made]
            if self._pin
            else made
        )


class _Ahead:
    """Thread that calls ``fetch`` once per request and returns its result or error."""

    def __init__(self, fetch: Callable[[], RankBatch]):
        self._fetch = fetch
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[RankBatch | BaseException] = queue.SimpleQueue()
        self.is_busy = False
        self._thread = threading.Thread(target=self._run, name="loader", daemon=True)
        self._thread.start()

    def request(self) -> None:
        """Begin a fetch, unless one is under way."""
        if not self.is_busy:
            self.is_busy = True
            self._requests.put(True)

    def take(self) -> RankBatch | Exception:
        """Return the result of the fetch that is under way."""
        result = self._results.get()
        self.is_busy = False
        if not isinstance(result, RankBatch | Exception):
            raise result
        return result

    def close(self, seconds: float | None) -> None:
        self._requests.put(False)
        self._thread.join(seconds)

    def _run(self) -> None:
        while self._requests.get():
            try:
                self._results.put(self._fetch())
            except BaseException as error:  # noqa: BLE001 - raised again by take(), in the rank's main thread
                self._results.put(error)
