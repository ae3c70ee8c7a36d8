"""DistributedDataParallel wrapper of one rank's objective, with support for abandoned steps.

A rank that runs out of memory, or whose last backward did not reach some parameter, has launched
only a part of the step's buckets. Its peers wait for the rest. The rank sends zeros for those, as
torch's ``Join`` shadows a rank that is done. The backward of every peer then ends, and all ranks
receive the failure in the control operation. The number of launched buckets is the difference of
the group's sequence numbers: DDP launches buckets in order, with one operation each, and nothing
else uses the group in a backward. After an abandoned step all ranks replace their wrappers.

Not here: dropping of gradients (``engine.strategies.ddp``).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from lockstep.domain.spec import job
from lockstep.engine.model.objective import Objective
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.strategies.base import Forward
from lockstep.engine.task.interface import Batch

_PARAMETERS = inspect.signature(DistributedDataParallel).parameters
_SYNC_BUFFERS = (
    "forward_sync_buffers" if "forward_sync_buffers" in _PARAMETERS else "broadcast_buffers"
)
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
    """

    def __init__(self, objective: Objective, ranks: Ranks, options: job.Strategy):
        assert ranks.device_group is not None, "a single rank has no group and no buckets"
        self.group = ranks.device_group
        self._launched_before = 0
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

    def forward(
        self, batch: Batch, scales: Mapping[str, float] | None, *, penalize: bool
    ) -> Forward:
        """Run the objective's forward.

        Outside of ``no_sync``, its backward reduces the gradients.
        """
        result: Forward = self.ddp(batch, scales, penalize=penalize)
        return result

    def reduce_next(self) -> None:
        """Let the next backward reduce, though all forwards ran inside ``no_sync``."""
        self.ddp.reducer.prepare_for_forward()
        self.ddp.reducer.prepare_for_backward([])

    def begin(self) -> None:
        """Begin a step. Buckets launched after this call belong to it."""
        self._launched_before = self._group_operations()

    @property
    def launched(self) -> int:
        """Number of this step's buckets that this rank has launched."""
        return self._group_operations() - self._launched_before

    def finish(self) -> bool:
        """Return whether every gradient was reduced, after the last backward of a step.

        If not, zeros were sent for the rest.
        """
        try:
            self.ddp.reducer._check_reducer_finalized()
        except RuntimeError:
            self.drain()
            return False
        return True

    def drain(self) -> None:
        """Send zeros for the buckets that the others wait for."""
        unsent = self.buckets()[self.launched :]
        # Through DDP's own hook, compressed or not: the peers expect this format and size.
        for waiting in [self.ddp.reducer._run_comm_hook(bucket) for bucket in unsent]:
            waiting.wait()

    def buckets(self) -> list[GradBucket]:
        """Return new buckets of zeros in launch order."""
        return list(self.ddp.reducer._get_zeros_like_grad_buckets())

    def _group_operations(self) -> int:
        return int(self.group._get_sequence_number_for_group())  # type: ignore[attr-defined] # missing in torch's stub
