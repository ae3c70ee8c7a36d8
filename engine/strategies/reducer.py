"""DistributedDataParallel wrapper of one rank's objective, with support for abandoned steps.

A rank that runs out of memory, or whose last backward did not reach some parameter, has launched
only a part of the step's buckets. Its peers wait for the rest. The rank sends zeros for those, as
torch's ``Join`` shadows a rank that is done. The backward of every peer then ends, and all ranks
receive the failure in the control operation. The number of launched buckets is the difference of
the group's sequence numbers: DDP launches buckets in order, with one operation each, and nothing
else uses the group in a backward. After an abandoned step all ranks replace their wrappers.

Not here: numbers sent with the gradient (``engine.strategies.rider``), dropping of gradients
(``engine.strategies.ddp``).
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
"""DDP's parameter for the broadcast of buffers in each forward. torch 2.13 renamed it."""


class Reducer:
    """DistributedDataParallel of one rank, valid until a step is abandoned.

    This class alone uses private members of torch's DDP.

    Parameters
    ----------
    objective : Objective
    ranks : Ranks
        More than one.
    options : domain.spec.Strategy
    exact : bool
        True if gradients are not rounded, so that the rider can be used.
    """

    def __init__(self, objective: Objective, ranks: Ranks, options: job.Strategy, *, exact: bool):
        assert ranks.device_group is not None, "a single rank has no group and no buckets"
        self.group = ranks.device_group
        self.carries = False
        """True if numbers are sent with the gradient; set after the warm-up."""
        self.told: list[list[float]] | None = None
        """Numbers of each rank in this step, in rank order."""
        self._bucket_count = self._launched_before = 0
        self._rider: Rider | None = None
        self._root: Tensor | None = None
        self._roots: list[Tensor] = []
        """Further roots of the next backward: the rider's after a forward that synchronises."""
        if exact and Rider.fits(objective.model, ranks.world_size):
            dtype = next(parameter.dtype for parameter in objective.model.parameters() if parameter.requires_grad)
            self._rider = Rider(ranks.rank, ranks.world_size, dtype)
            self._root = self._rider.root()
            # DDP reduces every parameter of the module that it wraps. The rider belongs to the
            # objective, not to the model, so it is neither trained nor saved.
            objective.register_parameter("rider", self._rider.parameter)
        # Without a broadcast of buffers in forward: it would be one more collective per step, and
        # the running statistics of rank 0 alone are wrong for the batch. The constructor of DDP
        # still makes the buffers equal.
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
        """Run the objective's forward. Outside of ``no_sync``, its backward reduces the gradients."""
        if self._root is not None and self.ddp.require_backward_grad_sync:
            self._roots = [self._root]
        result: Forward = self.ddp(batch, scales, penalize=penalize)
        return result

    def backward(self, objective: Tensor) -> None:
        """Run backward from the result of the last forward."""
        roots, self._roots = self._roots, []
        torch.autograd.backward([objective, *roots])

    def warmed_up(self) -> None:
        """Handle the end of the warm-up, after which the buckets are final."""
        if self._rider is not None:
            # False where gradients have two formats and buckets of the other format come later.
            buckets = self.buckets()
            self.carries, self._bucket_count = self._rider.rides_last(buckets), len(buckets)

    def tell(self, log_line: Callable[[], Sequence[float]] | None, meanwhile: Callable[[], None] | None) -> None:
        """Set the rider's callbacks: the source of its numbers, and the work after sending."""
        assert self._rider is not None, "only where numbers ride along"
        self._rider.log_line, self._rider.meanwhile = log_line, meanwhile

    def begin(self) -> None:
        """Begin a step. Buckets launched after this call belong to it."""
        self.told, self._launched_before = None, self._group_operations()

    @property
    def launched(self) -> int:
        """Number of this step's buckets that this rank has launched."""
        return self._group_operations() - self._launched_before

    @property
    def sent(self) -> bool:
        """True if all buckets and the numbers with them are launched."""
        return self.carries and self.launched == self._bucket_count

    def finish(self) -> bool:
        """Return whether every gradient was reduced, after the last backward of a step."""
        try:
            self.ddp.reducer._check_reducer_finalized()
        except RuntimeError:
            return False
        if self._rider is not None:
            self._hear(self._rider, self._rider.parameter.grad)
            self._rider.parameter.grad = None
        return True

    def drain(self) -> None:
        """Send zeros for the buckets that the others wait for, and the rider's numbers."""
        self._roots = []
        unsent = self.buckets()[self.launched :]
        place = self._rider.board(unsent[-1]) if self._rider is not None and self.carries and unsent else None
        # Through DDP's own hook, compressed or not: the peers expect this format and size.
        for waiting in [self.ddp.reducer._run_comm_hook(bucket) for bucket in unsent]:
            waiting.wait()
        if self._rider is not None:
            self._rider.parameter.grad = None
            self._hear(self._rider, place)

    def buckets(self) -> list[GradBucket]:
        """Return new buckets of zeros in launch order."""
        return list(self.ddp.reducer._get_zeros_like_grad_buckets())

    def _hear(self, rider: Rider, received: Tensor | None) -> None:
        if rider.log_line is not None and received is not None:
            self.told = rider.numbers(received)

    def _group_operations(self) -> int:
        return int(self.group._get_sequence_number_for_group())  # type: ignore[attr-defined] # missing in torch's stub
