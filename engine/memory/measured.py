"""Measurement of the memory that tensors used, the reference for forecasts.

On CUDA torch's allocator counts. On the CPU the profiler records every allocation and release, and
their running sum has the peak. It is independent of the count that forecasts and runs use
(``engine.memory.tensors``), and misses a release now and then.

Not here: the peak that is reported with each step (``engine.runtime.telemetry``).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity, profile

from lockstep.domain.spec.train import Train
from lockstep.engine.memory.parts import (
    StageOf,
    micro_batches_of,
    parts_of,
    rank_batch,
    stages_of,
)
from lockstep.engine.memory.tensors import TensorCount
from lockstep.engine.model.precision import Precision
from lockstep.engine.parallel.collectives import TensorGroup
from lockstep.engine.parallel.links import Links
from lockstep.engine.runtime import randomness
from lockstep.engine.runtime.control import numbers_of
from lockstep.engine.runtime.device import is_accelerator, module_of
from lockstep.engine.runtime.heartbeat import Heartbeat
from lockstep.engine.runtime.mesh import Mesh, mesh_of
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.timeline import timeline_for
from lockstep.engine.strategies import strategy_for
from lockstep.engine.task.interface import Task

_EVENT = "[memory]"
_STEPS = 2
_COUNTED_STEPS = 5
_MICRO_BATCHES_MAX = 3
_TRIES = 100
"""With two ranks beside each other on two cores, one count in five or six misses a release; on a
busy machine thirty in a row did."""
_LEFT_MAX = 0.01
"""Share of the peak that may be left at the end; a count with more missed a release."""


def measured_steps(
    task: Task, train: Train, ranks: Ranks, *, micro_batch_size: int, sample: Any
) -> int:
    """Return the peak of real steps of the engine, the quantity that a forecast predicts.

    All ranks must call this.

    Parameters
    ----------
    task : Task
        Prepared.
    train : Train
    ranks : Ranks
    micro_batch_size : int
    sample : Any
        One item of the training dataset, of which all micro-batches consist.
    """
    mesh = mesh_of(ranks, train.parallel)

    def run() -> None:
        with _steps_of(task, train, mesh, micro_batch_size=micro_batch_size, sample=sample) as step:
            for index in range(_STEPS):
                step(index)

    def run_and_forget() -> None:
        run()
        gc.collect()  # A model under DDP is held by cycles.

    best = count_of(run_and_forget, ranks.device)
    for _ in range(_TRIES):
        shares = ranks.gather(abs(best.left) / best.peak)
        if max(shares) <= _LEFT_MAX:
            return best.peak
        best = min(
            best, count_of(run_and_forget, ranks.device), key=lambda counted: abs(counted.left)
        )
    raise RuntimeError(
        f"shares of the peak that are never freed, by rank: {shares}. The peak cannot be "
        f"determined."
    )


def counted_steps(
    task: Task, train: Train, ranks: Ranks, *, micro_batch_size: int, sample: Any
) -> int:
    """Return the peak of the same steps by the count of live tensors that a run reports.

    Tensors of messages count as long as this rank holds them: the profiler misses releases in
    Gloo's threads, of which a pipeline has many. Such a thread may also release one late, so the
    lowest of several steps counts. All ranks must call this.
    """
    mesh, count = mesh_of(ranks, train.parallel), TensorCount()
    with _steps_of(task, train, mesh, micro_batch_size=micro_batch_size, sample=sample) as step:
        peaks = []
        for index in range(1 + _COUNTED_STEPS):
            with count:
                step(index)
            peaks.append(count.peak_bytes)
    return min(peaks[1:])  # The first finds what exists.


@contextmanager
def _steps_of(
    task: Task, train: Train, mesh: Mesh, *, micro_batch_size: int, sample: Any
) -> Iterator[Callable[[int], None]]:
    """Yield a function that runs a step of the engine. All ranks must call this."""
    ranks = mesh.world
    precision = Precision(train.precision, ranks.device)
    randomness.seed_host(randomness.seed_of(randomness.MODEL, train.seed))
    batch = task.collate([sample] * micro_batch_size)
    at_most, stage = _MICRO_BATCHES_MAX, None
    if mesh.line is not None:
        plan, _ = stages_of(task, train, task.collate([sample]))
        stage = StageOf(plan, Links(mesh.line, mesh.place.stage, plan.stages, ranks.device))
        at_most = train.batch.size
    _, strategy, gradient, optimizer = parts_of(
        task,
        train,
        strategy_for(train.strategy),
        mesh,
        precision,
        group=None if mesh.tensor is None else TensorGroup(mesh.tensor, mesh.place.tensor),
        stage=stage,
        sample=sample,
    )
    try:
        micro_batches = micro_batches_of(
            train, micro_batch_size=micro_batch_size, copies=mesh.layout.copies, at_most=at_most
        )
        whole, weights = rank_batch(
            batch,
            task.weight(batch),
            gradient.terms,
            samples=micro_batch_size,
            micro_batches=micro_batches,
        )
        timeline = timeline_for(ranks.device, Heartbeat.unseen())

        def step(index: int) -> None:
            found = gradient.accumulate(whole, weights, timeline)
            sums = mesh.from_last_stage(list(numbers_of(found.sums)))
            refused = optimizer.update(index, tuple(sums), optimizer.norm(1.0))
            strategy.after_update(index, 1.0, refused=refused)
            gradient.discard()

        yield step
    finally:
        gradient.close()


class Counted(NamedTuple):
    """Bytes above the amount that was held before."""

    peak: int
    left: int
    """Bytes at the end. On the CPU a release in a thread that the profiler does not see (Gloo's, if
    it is the last holder of a sent buffer) is missed, and the rest of the sum is too high by it."""


def count_of(run: Callable[[], object], device: torch.device) -> Counted:
    """Count the tensors during ``run``. On the CPU the profiler slows it down."""
    if is_accelerator(device):
        module = module_of(device)
        before = module.memory_allocated(device)
        module.reset_peak_memory_stats(device)
        run()
        return Counted(
            module.max_memory_allocated(device) - before,
            module.memory_allocated(device) - before,
        )
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    found = profiler.profiler.kineto_results.events() if profiler.profiler is not None else []
    events = sorted(
        (event for event in found if event.name() == _EVENT), key=lambda event: event.start_ns()
    )
    held = list(accumulate((int(event.nbytes()) for event in events), initial=0))
    return Counted(max(held), held[-1])


def kept_for_backward(run: Callable[[], object]) -> int:
    """Return the bytes that autograd keeps from the forwards of ``run``, parameters included.

    Costs next to nothing.

    Less than the peak because temporary memory of backward is not counted.
    """
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    return sum(kept.values())
