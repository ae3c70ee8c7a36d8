"""Messages of a tensor group, and their gradients.

A cut layer has a whole input and a whole output, equal on all ranks of the group. Between a
``copied`` input and a ``reduced`` or ``gathered`` output each rank computes its slice. The gradient
of a copy is the sum of what the slices contribute; the gradient of a sum or a concatenation is
known to every rank already (Shoeybi et al., arXiv 1909.08053).

All ranks of the group must call these functions in the same order.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.engine.runtime.timeline import Timeline, marked


class TensorGroup:
    """Ranks that hold slices of the same layers, as seen by one of them.

    Parameters
    ----------
    group : ProcessGroup
    index : int
        Index of this rank's slices.
    host : ProcessGroup, optional
        The same ranks, for tensors on the host; by default ``group`` sends them.
    """

    def __init__(self, group: dist.ProcessGroup, index: int, host: dist.ProcessGroup | None = None):
        self.group, self.index, self.size = group, index, group.size()
        self._host = host or group
        self._last: tuple[Tensor, Tensor] | None = None
        """The last input and its copy, until a layer ends with a whole output again."""
        self.timeline: Timeline | None = None
        """Timeline of the run's steps; None before them."""

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorGroup:
        return self

    def copied(self, whole: Tensor) -> Tensor:
        """Return the input of a cut layer. Its gradient is summed over the ranks.

        Layers that follow each other with the same input (query, key and value) share one copy, and
        so one sum.
        """
        if not (torch.is_grad_enabled() and whole.requires_grad):
            return whole
        if self._last is not None:
            before, shared = self._last
            if before is whole:
                return shared
        copied: Tensor = _Copied.apply(whole, self)  # type: ignore[no-untyped-call]
        self._last = whole, copied
        return copied

    def reduced(self, part: Tensor) -> Tensor:
        """Return the sum of every rank's part of an output."""
        self._last = None
        found: Tensor = _Reduced.apply(part, self)  # type: ignore[no-untyped-call]
        return found

    def gathered(self, slice_: Tensor) -> Tensor:
        """Return every rank's slice of an output, one after the other in the last dimension."""
        self._last = None
        found: Tensor = _Gathered.apply(slice_, self)  # type: ignore[no-untyped-call]
        return found

    def forget(self) -> None:
        """Release the last input: a recomputation may end before the layer that does."""
        self._last = None

    def sum_up(self, tensor: Tensor) -> None:
        """Add up a tensor over the ranks, in place."""
        with marked(self.timeline, "tensor"):
            dist.all_reduce(tensor, group=self._of(tensor))

    def exchange(self, every: list[Tensor], own: Tensor) -> None:
        """Fill a list with the tensors of all ranks, in their order."""
        with marked(self.timeline, "tensor"):
            dist.all_gather(every, own, group=self._of(own))

    def send_first(self, tensor: Tensor) -> None:
        """Replace a tensor by that of the first rank, in place."""
        with marked(self.timeline, "tensor"):
            dist.broadcast(tensor, group=self._of(tensor), group_src=0)

    def _of(self, tensor: Tensor) -> dist.ProcessGroup:
        return self._host if tensor.device.type == "cpu" else self.group


def _summed(part: Tensor, group: TensorGroup) -> Tensor:
    whole = part.detach().clone(memory_format=torch.contiguous_format)
    group.sum_up(whole)
    return whole


class _Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, whole: Tensor, group: TensorGroup) -> Tensor:
        ctx.group = group
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _summed(gradient, ctx.group), None


class _Reduced(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, part: Tensor, group: TensorGroup) -> Tensor:
        return _summed(part, group)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, slice_: Tensor, group: TensorGroup) -> Tensor:
        ctx.first, ctx.width = group.index * slice_.shape[-1], slice_.shape[-1]
        own = slice_.detach().contiguous()
        every = [torch.empty_like(own) for _ in range(group.size)]
        group.exchange(every, own)
        return torch.cat(every, -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.narrow(-1, ctx.first, ctx.width).contiguous(), None


class SilentGroup(TensorGroup):
    """First rank of a group whose other ranks do not exist, for forecasts. It sends nothing."""

    def __init__(self, size: int):
        self.index, self.size, self._last, self.timeline = 0, size, None, None

    def sum_up(self, tensor: Tensor) -> None:
        """Leave the tensor as it is."""

    def exchange(self, every: list[Tensor], own: Tensor) -> None:
        """Leave the tensors as they are."""

    def send_first(self, tensor: Tensor) -> None:
        """Leave the tensor as it is."""
