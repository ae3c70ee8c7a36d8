"""``micro_size: auto``: the largest micro-batch that fits, on the CPU the smallest fast one.

Candidates are the rank's shard of the batch halved again and again, rounded up: the shard itself,
⌈shard/2⌉, … 1. Micro-batches are therefore equal, there are at most log2(B) + 2 candidates, and
each could also result from halving after an out-of-memory (``BatchPlan.halved``).

On CUDA memory decides. Two small sizes are tried first. Memory grows linearly with the micro-batch,
so they predict which sizes cannot fit. From the largest remaining size on, sizes are tried until
one leaves the headroom.

On the CPU throughput decides, because memory is plenty and caches are not. Sizes are tried upwards
while they fit the rank's part of the available memory, until two in a row have gained nothing. The
*smallest* size within 5 % of the best is chosen: larger ones gain nothing above noise, and a choice
at the foot of a plateau seldom changes from one run to the next. A resumed run does not search; it
uses its checkpoint's size.

A trial is a masked forward and backward over real samples. It leaves parameters, buffers,
gradients, optimizer state, random generators and DDP's buckets as they were. Masked passes do not
use a compiled model, so under ``compile`` the uncompiled model is tried.

The stages of a pipeline compute together, so all ranks run a trial at once, of as many
micro-batches as a stage keeps. Only sizes with a bubble of at most 20 % are candidates, if there
are any. On a device the forecast names the largest one that fits, and a rehearsal of it shows a
shortage before step 1. Where a rank that runs out of memory cannot let the others end the pass
(layers that are cut), the forecast decides alone.

Not here: reaction to a later out-of-memory (``engine.loop.trainer``).
"""

from __future__ import annotations

import math
import random
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.utils.data import Dataset

from lockstep.domain.life.outcomes import Reason
from lockstep.domain.spec.batch import ceil_div
from lockstep.domain.spec.train import Train
from lockstep.domain.training.memory import in_words
from lockstep.domain.training.plan import BatchPlan
from lockstep.engine.data.fetching import seeded_sample
from lockstep.engine.memory.largest_forecast import largest_forecast
from lockstep.engine.memory.measured import kept_for_backward
from lockstep.engine.memory.sizes import (
    OUT_OF_MEMORY,
    OutOfMemory,
    Trial,
    candidates,
    fastest,
    largest,
    rehearsed,
    within_bubble,
)
from lockstep.engine.runtime.device import is_accelerator, module_of
from lockstep.engine.runtime.errors import EngineError, reason_of, release
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.step.gradient import GradientStep
from lockstep.engine.task.interface import Batch, Task

_BACKWARD_FACTOR: Final = 2.0
"""Peak of a pass on the host, as a multiple of the activations that forward keeps. An upper bound
over the models tried."""
_PASSES_MIN: Final = 3
"""Timed passes of a trial, of which the fastest counts: whatever else runs on a machine only ever
makes one slower."""
_TRIAL_SECONDS: Final = (0.3, 5.0)
"""Short passes are repeated at least for so long, because they are disturbed most; and long ones no
longer than that."""


def settled(
    plan: BatchPlan,
    gradient: GradientStep,
    ranks: Ranks,
    *,
    task: Task,
    train: Train,
    dataset: Dataset[Any],
    size: int,
    smallest: int = 1,
    code: Path | None = None,
    log_line: Callable[[str], None],
) -> BatchPlan:
    """Return the plan, with the micro-batch of :func:`choose` if it has none.

    All ranks must call this.

    Parameters
    ----------
    plan : BatchPlan
    gradient : GradientStep
        Warmed up.
    ranks : Ranks
    task : Task
    train : Train
    dataset : Dataset
        For training: its first samples are used.
    size : int
        Samples in the dataset.
    smallest : int
        Minimum samples of a micro-batch.
    code : Path, optional
        Folder of the job's code.
    log_line : callable
        Receives a line about the trials.
    """
    if plan.micro_batch_size is not None:
        return plan

    fetched: list[Any] = []

    def make_batch(samples: int) -> Batch:
        while len(fetched) < samples:
            fetched.append(seeded_sample(dataset, len(fetched) % size, seed=train.seed))
        return task.collate(fetched[:samples])

    shard = ceil_div(plan.batch_size, plan.copies)
    found = choose(
        gradient,
        make_batch,
        ranks,
        shard=shard,
        smallest=smallest,
        headroom=train.memory_headroom,
        forecast=partial(largest_forecast, train, code, ranks),
        log_line=log_line,
    )
    return plan.settled(found)


def choose(
    gradient: GradientStep,
    make_batch: Callable[[int], Batch],
    ranks: Ranks,
    *,
    shard: int,
    headroom: float,
    smallest: int = 1,
    forecast: Callable[[float], int] = lambda _: 0,
    log_line: Callable[[str], None] = lambda _: None,
) -> int:
    """Choose the micro-batch of a run. All ranks must call this, once everything else is in memory.

    Parameters
    ----------
    gradient : GradientStep
        Warmed up.
    make_batch : callable
        Returns a micro-batch of the given number of real samples, on the host.
    ranks : Ranks
    shard : int
        Samples of a batch on the rank with the largest shard.
    headroom : float
        Fraction of the memory to leave free.
    smallest : int
        Minimum samples of a micro-batch.
    forecast : callable
        Returns the largest size that needs at most so many bytes, for stages; 0 if none does.
    log_line : callable
        Receives a line about the trials.

    Returns
    -------
    int
        Samples; equal on all ranks.

    Raises
    ------
    EngineError
        ``out_of_memory``, if a single sample does not fit.
    """
    trials = _Trials(gradient, make_batch, ranks, shard)
    sizes = within_bubble(candidates(shard, smallest), shard, gradient.stages)
    with _unchanged(gradient, ranks.device):
        if is_accelerator(ranks.device) and gradient.stages > 1:
            limit = trials.limit_bytes(headroom)
            found = rehearsed(trials, sizes, forecast(limit), rehearses=gradient.drains)
        elif is_accelerator(ranks.device):
            found = largest(trials, sizes, limit_bytes=trials.limit_bytes(headroom))
        else:
            found = fastest(trials, sizes, fits=trials.fits_host(sizes, headroom))
    if found is None:
        raise EngineError(
            Reason.OUT_OF_MEMORY,
            "one sample per micro-batch does not fit into memory: use a smaller model or shorter "
            "samples, activation_checkpointing: true, precision: bf16, a smaller "
            "memory_headroom, or devices with more memory",
        )
    log_line(f"micro_size: auto chose {found} (on each rank: {trials.sentence()})")
    return found


class _Trials:
    """Masked passes of one size on all ranks, and their cost.

    No rank waits for another between its passes, but for stages.
    """

    def __init__(
        self,
        gradient: GradientStep,
        make_batch: Callable[[int], Batch],
        ranks: Ranks,
        shard: int,
    ):
        self._gradient, self._make_batch, self._ranks = gradient, make_batch, ranks
        self._shard = shard
        self._tried: list[str] = []

    def __call__(self, size: int) -> Trial | OutOfMemory:
        """Try a size. All ranks must call this, with the same one."""
        found = self._ranks.gather(self._alone(partial(self._measure, size)))
        trials = [trial for trial in found if trial is not None]
        if len(trials) < len(found):
            self._tried.append(f"{size} does not fit")
            return OUT_OF_MEMORY
        peak_bytes, seconds = (max(values) for values in zip(*trials, strict=True))
        took = f" in {in_words(peak_bytes)}" if peak_bytes else ""
        per_sample = self._per_sample(size, seconds)
        self._tried.append(f"{size} at {1 / per_sample:,.0f} samples/s{took}")
        return Trial(peak_bytes, per_sample)

    def sentence(self) -> str:
        """Summary of the trials, for the log."""
        return ", ".join(self._tried)

    def limit_bytes(self, headroom: float) -> float:
        """Memory that the allocator of a CUDA device may hold, the minimum over the ranks.

        All ranks must call this.
        """
        device = self._ranks.device
        free, total = module_of(device).mem_get_info(device)
        # The driver's own context, the collectives', other processes.
        others = total - free - module_of(device).memory_reserved(device)
        return min(self._ranks.gather(float(total * (1 - headroom) - others)))

    def fits_host(self, sizes: Sequence[int], headroom: float) -> Callable[[int], bool]:
        """Return a predicate for sizes that fit into this host's memory. All ranks must call this.

        The two smallest sizes predict the others. The activations that forward keeps are counted
        twice, as an allowance for backward. This keeps a trial from exhausting the host, where
        there is no second try. Throughput usually decides long before.
        """
        names = self._ranks.gather(socket.gethostname())
        limit = available_bytes() / names.count(names[self._ranks.rank]) * (1 - headroom)
        kept = [self._alone(partial(self._kept, size)) for size in sizes[:2]]
        first = math.inf if kept[0] is None else kept[0]
        growth = (
            math.inf
            if None in kept
            else (kept[-1] - first) / max(1, sizes[len(kept) - 1] - sizes[0])
        )
        # Each rank has its own line and its own limit, but there must be one answer.
        here = [first * _BACKWARD_FACTOR <= limit for size in sizes[:1]]
        here += [
            _BACKWARD_FACTOR * (first + growth * (size - sizes[0])) <= limit for size in sizes[1:]
        ]
        everywhere = [all(answers) for answers in zip(*self._ranks.gather(here), strict=True)]
        return dict(zip(sizes, everywhere, strict=True)).__getitem__

    def _measure(self, size: int) -> tuple[float, float]:
        """Peak of the device in bytes, and seconds of the fastest pass."""
        device = self._ranks.device
        module = module_of(device) if is_accelerator(device) else None
        batch = self._make_batch(size)
        if module is not None:
            module.empty_cache()
            module.reset_peak_memory_stats(device)
        # The first pass is not timed: it leaves the gradient that later micro-batches find, and
        # warms up kernels.
        self._run(batch, size)
        seconds, passes, spent = math.inf, 0, 0.0
        at_least, at_most = _TRIAL_SECONDS
        while (passes < _PASSES_MIN and spent < at_most) or spent < at_least:
            begin = time.perf_counter()
            self._run(batch, size)
            took = self._agreed(time.perf_counter() - begin)
            seconds, passes, spent = min(seconds, took), passes + 1, spent + took
        peak = 0.0 if module is None else float(module.max_memory_allocated(device))
        return peak, seconds

    def _kept(self, size: int) -> int:
        batch = self._make_batch(size)
        return kept_for_backward(lambda: self._run(batch, size))

    def _run(self, batch: Batch, size: int) -> None:
        if self._gradient.stages > 1 and self._gradient.drains:
            self._run_together(batch, size)
        else:
            self._gradient.rehearse(batch, size, self._count(size))
        if is_accelerator(self._ranks.device):
            module_of(self._ranks.device).synchronize(self._ranks.device)

    def _run_together(self, batch: Batch, size: int) -> None:
        """Run a pass of all stages; it fails on all ranks if it does on one."""
        failed = False
        try:
            self._gradient.rehearse(batch, size, self._count(size))
        except Exception as error:
            if reason_of(error) is not Reason.OUT_OF_MEMORY:
                raise
            release(error)
            failed = True
        if any(self._ranks.gather(failed)):
            raise torch.OutOfMemoryError("a stage ran out of memory")

    def _count(self, size: int) -> int:
        """Micro-batches of a pass: as many as a stage may keep."""
        return min(self._gradient.stages, ceil_div(self._shard, size))

    def _per_sample(self, size: int, seconds: float) -> float:
        """Return the seconds of a step for each of its samples, by those of a pass."""
        stages = self._gradient.stages
        if stages == 1:
            return seconds / size
        # A pass of n micro-batches takes n + P - 1 times as long as one on one stage.
        one = seconds / (self._count(size) + stages - 1)
        return one * (ceil_div(self._shard, size) + stages - 1) / self._shard

    def _agreed(self, seconds: float) -> float:
        """Return the time of a pass. Stages must run equally many, so they agree on it."""
        if self._gradient.stages == 1:
            return seconds
        return max(self._ranks.gather(seconds))

    def _alone(self, run: Callable[[], Any]) -> Any:
        """Return the result of ``run``, or None if memory ran out. Its leftovers are freed."""
        try:
            return run()
        except Exception as error:
            if reason_of(error) is not Reason.OUT_OF_MEMORY:
                raise
            release(error)
            return None
        finally:
            self._gradient.discard()


@contextmanager
def _unchanged(gradient: GradientStep, device: torch.device) -> Iterator[None]:
    """Restore the state that masked passes may change: buffers and random generators.

    Trials drop gradients themselves.
    """
    host = torch.get_rng_state(), random.getstate(), np.random.get_state(legacy=True)
    module = module_of(device) if is_accelerator(device) else None
    on_device = None if module is None else module.get_rng_state(device)
    with gradient.state.unchanged():
        yield
    torch.set_rng_state(host[0])
    random.setstate(host[1])
    np.random.set_state(host[2])
    if module is not None:
        module.set_rng_state(on_device, device)
        module.empty_cache()
        module.reset_peak_memory_stats(device)


def available_bytes(
    meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")
) -> float:
    """Return the available memory of this host, by the kernel and by a container's limit."""
    found = {
        name: value
        for name, _, value in (line.partition(":") for line in meminfo.read_text().splitlines())
    }
    available = float(found["MemAvailable"].split()[0]) * 1024
    try:
        limit, used = (
            (cgroup / name).read_text().strip() for name in ("memory.max", "memory.current")
        )
    except OSError:
        return available
    return available if limit == "max" else min(available, max(0.0, float(limit) - float(used)))
