"""torch's wrapper of one rank's objective: how far it is in a step, how a step is given up, and what rides along.

Abandoning a step. A rank that runs out of memory, or whose last backward did not reach some parameter, has launched a
part of the step's buckets; its peers wait for the rest. It sends zeros for those (the way torch's ``Join`` shadows a
rank that is done), so every peer's backward ends, and all ranks learn of it in the control operation. How many buckets
it launched is the difference of the group's sequence numbers: DDP launches them in order, with one operation each, and
nothing else uses the group in a backward. A wrapper that was left in the middle is not mended but replaced, on all
ranks.

Not here: what rides along (``engine.strategies.rider``), and how gradients are dropped (``engine.strategies.ddp``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from lockstep.domain.spec import job
from lockstep.engine.model.objective import Objective
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.strategies.base import Forward
from lockstep.engine.strategies.rider import Rider
from lockstep.engine.task.interface import Batch

_PARAMETERS = inspect.signature(DistributedDataParallel).parameters
_SYNC_BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in _PARAMETERS else "broadcast_buffers"
"""What DDP calls the broadcast of buffers in each forward: torch 2.13 renamed it."""


class Reducer:
    """One rank's DistributedDataParallel, until a step is given up. What is private to torch's is used here alone.

    Parameters
    ----------
    objective : Objective
    ranks : Ranks
        More than one.
    options : domain.spec.Strategy
    exact : bool
        Whether what is sent arrives as it is, so that numbers can ride along.
    """

    def __init__(self, objective: Objective, ranks: Ranks, options: job.Strategy, *, exact: bool):
        assert ranks.device_group is not None, "a single rank has no group and no buckets"
        self.group = ranks.device_group
        self.carries = False
        """Whether numbers ride along; known after the warm-up."""
        self.told: list[list[float]] | None = None
        """What each rank said in this step, in rank order."""
        self._bucket_count = self._launched_before = 0
        self._rider: Rider | None = None
        self._root: Tensor | None = None
        self._roots: list[Tensor] = []
        """Where the next backward begins, besides the objective: at the rider's, behind a forward that synchronises."""
        if exact and Rider.fits(objective.model, ranks.world_size):
            dtype = next(parameter.dtype for parameter in objective.model.parameters() if parameter.requires_grad)
            self._rider = Rider(ranks.rank, ranks.world_size, dtype)
            self._root = self._rider.root()
            # DDP reduces what is a parameter of what it wraps. It is none of the model's, which alone is trained and saved.
            objective.register_parameter("rider", self._rider.parameter)
        # No buffers in forward: a broadcast of rank 0's buffers in every step would be one more collective, and right
        # for no rank's running statistics. Buffers are still made equal here, at the start.
        more: dict[str, Any] = {_SYNC_BUFFERS: False}
        self.ddp = DistributedDataParallel(
            objective,
            process_group=self.group,
            bucket_cap_mb=options.bucket_cap_mb,
            gradient_as_bucket_view=options.buckets_hold_gradients,
            static_graph=options.static_graph,
            **more,
        )

    def forward(self, batch: Batch, scales: Mapping[str, float] | None, *, penalize: bool) -> Forward:
        """Run the objective's forward; outside of ``no_sync``, what it gives is reduced in the backward."""
        if self._root is not None and self.ddp.require_backward_grad_sync:
            self._roots = [self._root]
        result: Forward = self.ddp(batch, scales, penalize=penalize)
        return result

    def backward(self, objective: Tensor) -> None:
        """Differentiate what the last forward gave."""
        roots, self._roots = self._roots, []
        torch.autograd.backward([objective, *roots])

    def warmed_up(self) -> None:
        """The buckets are what they stay."""
        if self._rider is not None:
            # Not so where gradients are of two formats, and the other's buckets come later.
            buckets = self.buckets()
            self.carries, self._bucket_count = self._rider.rides_last(buckets), len(buckets)

    def tell(self, say: Callable[[], Sequence[float]] | None, meanwhile: Callable[[], None] | None) -> None:
        """What the rider asks for, and what it has done once it is on its way."""
        assert self._rider is not None, "only where numbers ride along"
        self._rider.say, self._rider.meanwhile = say, meanwhile

    def begin(self) -> None:
        """What is launched from here on is this step's."""
        self.told, self._launched_before = None, self._group_operations()

    @property
    def launched(self) -> int:
        """Buckets of this step that have left this rank."""
        return self._group_operations() - self._launched_before

    @property
    def sent(self) -> bool:
        """Whether all of them have, with what rides along."""
        return self.carries and self.launched == self._bucket_count

    def finish(self) -> bool:
        """After the last backward of a step: whether every gradient was reduced."""
        try:
            self.ddp.reducer._check_reducer_finalized()
        except RuntimeError:
            return False
        if self._rider is not None:
            self._hear(self._rider, self._rider.parameter.grad)
            self._rider.parameter.grad = None
        return True

    def drain(self) -> None:
        """Send zeros for what the others still wait for, and what the rider has to say."""
        self._roots = []
        unsent = self.buckets()[self.launched :]
        place = self._rider.board(unsent[-1]) if self._rider is not None and self.carries and unsent else None
        # As DDP itself would send them, compressed or not: what the peers wait for has this format and this size.
        for waiting in [self.ddp.reducer._run_comm_hook(bucket) for bucket in unsent]:
            waiting.wait()
        if self._rider is not None:
            self._rider.parameter.grad = None
            self._hear(self._rider, place)

    def buckets(self) -> list[GradBucket]:
        """New ones of zeros, in the order in which they are launched."""
        return list(self.ddp.reducer._get_zeros_like_grad_buckets())

    def _hear(self, rider: Rider, received: Tensor | None) -> None:
        if rider.say is not None and received is not None:
            self.told = rider.numbers(received)

    def _group_operations(self) -> int:
        return int(self.group._get_sequence_number_for_group())  # type: ignore[attr-defined] # missing in torch's stub
