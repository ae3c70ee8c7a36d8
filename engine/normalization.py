"""The running statistics of BatchNorm, made one over all ranks where somebody looks at them (contract C24).

Each rank's layers see only its own micro-batches, so their running means and variances drift apart, and what would be
evaluated or saved would be rank 0's. Before an evaluation and before a checkpoint they are replaced, on every rank, by
their mean over the ranks. Statistics are updated linearly (new = (1 - momentum) old + momentum seen), so the mean of
the ranks' statistics goes the same way however often it is taken; training does not read them.

Not here: that such a model depends on its micro-batches, which its task must declare (``engine.probe``).
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from engine.ranks import Ranks


def average_statistics(model: nn.Module, ranks: Ranks) -> None:
    """Give every rank the mean of all ranks' running statistics. All ranks must call this.

    Every rank counts alike. The number of batches that a layer has seen becomes the largest of the ranks'. Models
    without such layers cost nothing.

    Parameters
    ----------
    model : nn.Module
        Without its wrapper.
    ranks : Ranks
    """
    if ranks.device_group is None:
        return
    layers = [module for module in model.modules() if isinstance(module, _NormBase) and module.running_mean is not None]
    if not layers:
        return
    statistics = [value for layer in layers for value in (layer.running_mean, layer.running_var) if value is not None]
    counts = [layer.num_batches_tracked for layer in layers if layer.num_batches_tracked is not None]
    with torch.no_grad():
        _average(statistics, ranks)
        if counts:
            seen = torch.stack(counts)
            dist.all_reduce(seen, dist.ReduceOp.MAX, group=ranks.device_group)
            for count, most in zip(counts, seen, strict=True):
                count.copy_(most)


def _average(values: list[Tensor], ranks: Ranks) -> None:
    """Replace tensors by their mean over the ranks, in one reduction. In float64, so that equal ones stay as they are."""
    together = torch.cat([value.flatten().double() for value in values])
    ranks.sum_on_device(together)
    together /= ranks.world_size
    for value, mean in zip(values, torch.split(together, [value.numel() for value in values]), strict=True):
        value.copy_(mean.view_as(value))
