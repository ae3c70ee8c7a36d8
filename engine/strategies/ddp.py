"""``ddp``: torch's DistributedDataParallel. Every rank holds the whole model; gradients are averaged once per step.

The all-reduces run in the last backward of a step, bucket by bucket, while earlier layers are still differentiated.

Abandoning a step. A rank that runs out of memory, or whose last backward did not reach some parameter, has launched a
part of the step's buckets; its peers wait for the rest. It sends zeros for those (the way torch's ``Join`` shadows a
rank that is done), so every peer's backward ends, and all ranks learn of it in the control operation. How many buckets
it launched is the difference of the group's sequence numbers: DDP launches them in order, with one operation each, and
nothing else uses the group in a backward. The reducer that was left in the middle is not mended but replaced, on all
ranks.

Gradients are views of the buckets. Where a step adds up several micro-batches they are zeroed and not dropped, so that
the next ones add to the buckets in place: dropped ones would be allocated anew, and the second gradient that views are to
save would be there again. Where a step is one micro-batch, they are dropped: each parameter's gradient then goes into its
bucket as soon as it is there, and nothing is written twice.

Not here: compression of what is sent (``engine.strategies.compression``, ``engine.strategies.powersgd``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from domain import spec
from engine.objective import Objective
from engine.ranks import Ranks
from engine.strategies.base import Forward, Strategy
from engine.strategies.rider import NUMBERS_MAX, Rider
from engine.task import Batch

_SYNC_BUFFERS = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in inspect.signature(DistributedDataParallel).parameters
)
"""What DDP calls the broadcast of buffers in each forward: torch 2.13 renamed it."""


class DDP(Strategy):
    """torch DDP, with the last micro-batch of a step as the one that synchronises."""

    repeats: ClassVar[bool] = True
    sends_exactly: ClassVar[bool] = True
    """Whether what is sent arrives as it is: no hook rounds it."""

    def __init__(self, objective: Objective, ranks: Ranks, options: spec.Strategy):
        super().__init__(objective, ranks, options)
        self._rider: Rider | None = None
        self._root: Tensor | None = None
        """The rider's."""
        self._roots: list[Tensor] = []
        """Where the next backward begins, besides the objective: at the rider's, behind a forward that synchronises."""
        self._carries, self._buckets = False, 0
        self._adds_up = True
        """Whether a step is taken to have several micro-batches: known of the last one, and until then supposed."""
        self._told: list[list[float]] | None = None
        self._launched_before = 0
        self._ddp = self._wrap()

    @property
    def warm_up_passes(self) -> int:
        # A static graph counts in its first pass how often each gradient comes, and notes their order in the second.
        return 3 if self.options.static_graph else 2

    def forward(self, batch: Batch, scales: Mapping[str, float] | None, *, penalize: bool) -> Forward:
        ddp = self._ddp
        if ddp is None:
            alone: Forward = self.objective(batch, scales, penalize=penalize)
            return alone
        if self._root is not None and ddp.require_backward_grad_sync:
            self._roots = [self._root]
        result: Forward = ddp(batch, scales, penalize=penalize)
        return result

    def backward(self, objective: Tensor) -> None:
        roots, self._roots = self._roots, []
        torch.autograd.backward([objective, *roots])

    def local(self) -> AbstractContextManager[None]:
        self._adds_up = True
        return nullcontext() if self._ddp is None else self._ddp.no_sync()

    def begin_reduction(self) -> None:
        self._told, self._adds_up = None, False
        if self._ddp is not None:
            self._launched_before = self._launched()

    def finish_reduction(self) -> bool:
        if self._ddp is None:
            return True
        try:
            self._ddp.reducer._check_reducer_finalized()
        except RuntimeError:
            return False
        if self._rider is not None:
            self._hear(self._rider, self._rider.parameter.grad)
            self._rider.parameter.grad = None
        return True

    def warmed_up(self) -> None:
        self._adds_up = True
        if self._rider is not None and self._ddp is not None:
            # Not so where gradients are of two formats, and the other's buckets come later.
            buckets = self._ddp.reducer._get_zeros_like_grad_buckets()
            self._carries, self._buckets = self._rider.rides_last(buckets), len(buckets)

    @property
    def carries(self) -> int:
        return NUMBERS_MAX if self._carries else 0

    def tell(self, say: Callable[[], Sequence[float]] | None, meanwhile: Callable[[], None] | None = None) -> None:
        assert self._rider is not None, "only where the strategy carries"
        self._rider.say, self._rider.meanwhile = say, meanwhile

    @property
    def sent(self) -> bool:
        return self._carries and self._launched() - self._launched_before == self._buckets

    @property
    def told(self) -> list[list[float]] | None:
        return self._told

    def discard(self) -> None:
        if self._ddp is None or not self._adds_up or not self.options.buckets_hold_gradients:
            super().discard()
            return
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        if gradients:
            torch._foreach_zero_(gradients)

    def drain(self) -> None:
        self._roots = []
        if self._ddp is None:
            return
        reducer = self._ddp.reducer
        buckets = reducer._get_zeros_like_grad_buckets()
        unsent = buckets[self._launched() - self._launched_before :]
        place = self._rider.board(unsent[-1]) if self._rider is not None and self._carries and unsent else None
        # As DDP itself would send them, compressed or not: what the peers wait for has this format and this size.
        for waiting in [reducer._run_comm_hook(bucket) for bucket in unsent]:
            waiting.wait()
        if self._rider is not None:
            self._rider.parameter.grad = None
            self._hear(self._rider, place)

    def reset(self) -> None:
        self._ddp = None  # Its reducer's hooks must be gone before the next one sets its own.
        super().discard()  # Views would keep the old buckets.
        self._ddp = self._wrap()

    def close(self) -> None:
        self._ddp = None
        self.objective.register_parameter("rider", None)

    def add_hook(self, ddp: DistributedDataParallel) -> None:
        """Register what replaces the plain all-reduce of a bucket, on each new wrapper."""

    def _hear(self, rider: Rider, received: Tensor | None) -> None:
        if rider.say is not None and received is not None:
            self._told = rider.numbers(received)

    @property
    def _group(self) -> dist.ProcessGroup:
        group = self.ranks.device_group
        assert group is not None, "a single rank has no group and no buckets"
        return group

    def _launched(self) -> int:
        number: int = self._group._get_sequence_number_for_group()  # type: ignore[attr-defined] # missing in torch's stub
        return number

    def _wrap(self) -> DistributedDataParallel | None:
        if self.ranks.world_size == 1:
            return None
        # No buffers in forward: a broadcast of rank 0's buffers in every step would be one more collective, and right
        # for no rank's running statistics. Buffers are still made equal here, at the start.
        options: dict[str, Any] = {_SYNC_BUFFERS: False}
        self._carries = False
        if self.sends_exactly and Rider.fits(self.model, self.ranks.world_size):
            dtype = next(parameter.dtype for parameter in self.model.parameters() if parameter.requires_grad)
            self._rider = Rider(self.ranks.rank, self.ranks.world_size, dtype)
            self._root = self._rider.root()
            # DDP reduces what is a parameter of what it wraps. It is none of the model's, which alone is trained and saved.
            self.objective.register_parameter("rider", self._rider.parameter)
        ddp = DistributedDataParallel(
            self.objective,
            process_group=self.ranks.device_group,
            bucket_cap_mb=self.options.bucket_cap_mb,
            gradient_as_bucket_view=self.options.buckets_hold_gradients,
            static_graph=self.options.static_graph,
            **options,
        )
        self.add_hook(ddp)
        return ddp
