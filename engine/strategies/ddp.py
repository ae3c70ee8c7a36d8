"""``ddp``: torch's DistributedDataParallel.

Every rank holds the whole model. Gradients are averaged once per step. The all-reduces run in the
last backward of a step, bucket by bucket, while autograd still processes earlier layers.

Gradients are views of the buckets. In a step of several micro-batches they are zeroed instead of
dropped, and later micro-batches add to the buckets in place. Dropped gradients would be allocated
again, which is the second copy that views avoid. In a step of one micro-batch they are dropped:
each gradient is written into its bucket as soon as it is computed, without zeroing first.

DDP expects a gradient for every parameter in the last micro-batch of each rank. Once usage is
tracked, because a model is conditional (experts, LayerDrop, one head per task), the wrapper is not
used. Each rank then accumulates its gradients, and they are reduced after the last backward,
uncompressed (``engine.strategies.flat``).

Not here: the DDP wrapper and abandoned steps (``engine.strategies.reducer``); gradient compression
(``engine.strategies.compression``, ``engine.strategies.experimental.powersgd``).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import ClassVar

import torch

from lockstep.domain.spec import job
from lockstep.engine.model.objective import Objective
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.strategies.base import Forward, Strategy
from lockstep.engine.strategies.block_order import ModelUsage
from lockstep.engine.strategies.flat import FlatReduction
from lockstep.engine.strategies.reducer import Reducer
from lockstep.engine.task.interface import Batch


class DDP(Strategy):
    """torch DDP that synchronises in the last micro-batch of a step."""

    repeats: ClassVar[bool] = True

    def __init__(
        self,
        objective: Objective,
        ranks: Ranks,
        options: job.Strategy,
        usage: ModelUsage | None = None,
    ):
        super().__init__(objective, ranks, options, usage)
        # With static_graph, DDP counts the uses of each gradient in the first pass and records
        # their order in the second.
        self.warm_up_passes = 3 if options.static_graph else 2
        self._flat: FlatReduction | None = None
        self._reducer: Reducer | None = None
        self._share()

    def forward(
        self, batch: Batch, scales: Mapping[str, float] | None, *, penalize: bool
    ) -> Forward:
        run = self.objective if self._reducer is None else self._reducer.forward
        result: Forward = run(batch, scales, penalize=penalize)
        return result

    def micro_batch(self, *, last: bool, empty: bool = False) -> AbstractContextManager[None]:
        usual = super().micro_batch(last=last, empty=empty)
        return usual if last or self._reducer is None else self._reducer.ddp.no_sync()

    def backward(self, *, last: bool, empty: bool = False) -> AbstractContextManager[None]:
        if last and self._reducer is not None:
            self._reducer.reduce_next()
        return super().backward(last=last, empty=empty)

    def begin_reduction(self, *, counted: bool = False) -> None:
        super().begin_reduction(counted=counted)
        if self._reducer is not None:
            self._reducer.begin()

    def finish_reduction(self) -> bool:
        if self._flat is not None:
            self._flat.reduce(self._used(), drop_unused=True)
            return True
        return self._reducer is None or self._reducer.finish()

    def discard(self, *, reuse: bool) -> None:
        if self._reducer is None or not reuse or not self.options.buckets_hold_gradients:
            super().discard(reuse=reuse)
            return
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        if gradients:
            torch._foreach_zero_(gradients)

    def drain(self) -> None:
        if self._flat is not None:
            self._flat.drain()
        elif self._reducer is not None:
            self._reducer.drain()

    def reset(self, *, track_usage: bool = False) -> None:
        super().reset(track_usage=track_usage)
        self._reducer = None  # Removes its hooks before the next wrapper registers its own.
        super().discard(reuse=False)  # Views would keep the old buckets.
        self._share()

    def close(self) -> None:
        self._reducer = None

    def add_hook(self, reducer: Reducer) -> None:
        """Register the hook that replaces the all-reduce of a bucket.

        Called for each new wrapper.
        """

    def _share(self) -> None:
        """Create the gradient reduction. A single rank has none."""
        if self.ranks.world_size == 1:
            return
        if self.tracks_usage:
            self._flat = FlatReduction(self._trained, self.ranks)
        else:
            self._reducer = Reducer(self.objective, self.ranks, self.options)
            self.add_hook(self._reducer)
