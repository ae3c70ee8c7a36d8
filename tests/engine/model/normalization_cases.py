"""Running statistics that differ between ranks, for ranks of the pool."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from lockstep.engine.model.normalization import average_statistics
from lockstep.engine.runtime.ranks import Ranks


def averaged(ranks: Ranks, dtype: torch.dtype) -> list[dict[str, torch.Tensor]]:
    """Return the state before an average, after one, and after two."""
    generator = torch.Generator().manual_seed(ranks.rank)
    model: Any = nn.Sequential(
        nn.BatchNorm1d(3),
        nn.BatchNorm2d(2, affine=False),
        nn.InstanceNorm1d(2, track_running_stats=True),
        nn.BatchNorm1d(3, track_running_stats=False),
        nn.GroupNorm(1, 4),
    ).to(dtype)
    model.register_buffer("other", torch.full((1,), float(ranks.rank)))
    for index, layer in enumerate(model[:3]):
        layer.running_mean.copy_(torch.randn(layer.num_features, generator=generator))
        layer.running_var.copy_(torch.rand(layer.num_features, generator=generator))
        layer.num_batches_tracked.fill_(10 * index + ranks.rank)
    states = [{name: value.clone() for name, value in model.state_dict().items()}]
    for _ in range(2):
        average_statistics(model, ranks)
        states.append({name: value.clone() for name, value in model.state_dict().items()})
    return states
