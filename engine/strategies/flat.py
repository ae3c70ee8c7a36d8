"""Sum of all gradients over the ranks after the last backward, in one message per number format.

Each message ends with one number per parameter: 1 where a sample of this rank used the parameter.
Parameters with a sum above 0 were used by the whole batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lockstep.engine.runtime.ranks import Ranks


class FlatReduction:
    """Buffers for the gradients of one model, and their reduction.

    The buffers are allocated at construction. A rank that runs out of memory in a step can
    therefore still send zeros.

    Parameters
    ----------
    trained : sequence of Parameter
        Trainable parameters, in the same order on all ranks.
    ranks : Ranks
        More than one.
    """

    def __init__(self, trained: Sequence[nn.Parameter], ranks: Ranks):
        by_format: dict[torch.dtype, list[int]] = {}
        for index, parameter in enumerate(trained):
            by_format.setdefault(parameter.dtype, []).append(index)
        self._messages = [_Message(trained, indices) for indices in by_format.values()]
        self._ranks = ranks

    def reduce(self, used: Sequence[bool], *, drop_unused: bool) -> None:
        """Replace each gradient by its mean over the ranks. All ranks must call this.

        Parameters
        ----------
        used : sequence of bool
            For each parameter, True if a sample of this rank used it.
        drop_unused : bool
            True leaves parameters that no rank used without a gradient. The host then waits for
            the device.
        """
        for message in self._messages:
            message.pack(used)
            self._sum(message.buffer)
            message.unpack(self._ranks.world_size, drop_unused=drop_unused)

    def drain(self) -> None:
        """Send zeros in place of this rank's gradients."""
        for message in self._messages:
            message.buffer.zero_()
            self._sum(message.buffer)

    def _sum(self, buffer: Tensor) -> None:
        dist.all_reduce(buffer, op=dist.ReduceOp.SUM, group=self._ranks.device_group)


class _Message:
    """Concatenated gradients of one number format, followed by one usage flag per parameter."""

    def __init__(self, trained: Sequence[nn.Parameter], indices: list[int]):
        self._indices = indices
        self._parameters = [trained[index] for index in indices]
        first = self._parameters[0]
        sizes = [parameter.numel() for parameter in self._parameters]
        self.buffer = torch.zeros(sum(sizes) + len(sizes), dtype=first.dtype, device=first.device)
        *places, self._use = torch.split(self.buffer, [*sizes, len(sizes)])
        self._places = [
            place.view(parameter.shape)
            for parameter, place in zip(self._parameters, places, strict=True)
        ]

    def pack(self, used: Sequence[bool]) -> None:
        """Copy this rank's gradients into the buffer, with zeros for missing gradients."""
        for parameter, place in zip(self._parameters, self._places, strict=True):
            if parameter.grad is None:
                place.zero_()
            else:
                place.copy_(parameter.grad)
        use = torch.tensor([float(used[index]) for index in self._indices], dtype=self._use.dtype)
        self._use.copy_(use)

    def unpack(self, world_size: int, *, drop_unused: bool) -> None:
        """Copy the mean over the ranks into the gradients."""
        used = (self._use.real > 0).tolist() if drop_unused else [True] * len(self._parameters)
        self.buffer.div_(world_size)
        for parameter, place, is_used in zip(self._parameters, self._places, used, strict=True):
            if not is_used:
                parameter.grad = None
                continue
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)  # In the parameter's memory layout.
            parameter.grad.copy_(place)
