"""Buffers of a model over the ranks: all begin with those of rank 0.

Not here: buffers around a step (``engine.state.step``), running statistics that have drifted apart
between ranks (``engine.model.normalization``).
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from lockstep.engine.runtime.ranks import Ranks


def share_buffers(model: nn.Module, ranks: Ranks) -> None:
    """Let every rank begin with rank 0's. All ranks must call this."""
    if ranks.device_group is None:
        return
    with torch.no_grad():
        for buffer in model.buffers():
            first = buffer.detach().clone(memory_format=torch.contiguous_format)
            # As bytes: not every number format is sent.
            dist.broadcast(first.flatten().view(torch.uint8), group=ranks.device_group, group_src=0)
            if not torch.equal(
                first, buffer
            ):  # Some cannot be written to, such as those that repeat one number.
                buffer.copy_(first)
