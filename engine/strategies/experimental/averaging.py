"""Averages over ranks, for strategies whose ranks have different parameters.

Not here: times and weights of the averages (``engine.strategies.experimental.local_sgd``).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lockstep.engine.runtime.ranks import Ranks


def average(ranks: Ranks, tensors: list[Tensor], weight: float) -> list[Tensor]:
    """Return the weighted sum of the ranks' tensors, equal on all ranks. All ranks must call this.

    The tensors are sent in one message per number format, whose buffer takes as much memory as the
    tensors of that format.

    Parameters
    ----------
    ranks : Ranks
    tensors : list of Tensor
        The same number, shapes and formats on every rank.
    weight : float
        Weight of this rank. The weights of all ranks sum to 1.
    """
    averages = list(tensors)
    by_format: dict[torch.dtype, list[int]] = {}
    for index, tensor in enumerate(tensors):
        by_format.setdefault(tensor.dtype, []).append(index)
    for indices in by_format.values():
        flat = torch.cat([tensors[index].detach().reshape(-1) for index in indices]).mul_(weight)
        ranks.sum_on_device(flat)
        pieces = torch.split(flat, [tensors[index].numel() for index in indices])
        for index, piece in zip(indices, pieces, strict=True):
            averages[index] = piece.view(tensors[index].shape)
    return averages


def averaged_moments(ranks: Ranks, moments: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Return an optimizer's state by parameter, averaged over the ranks with equal weights.

    Step counters are not averaged; they are this rank's.

    All ranks must call this.
    """
    places = [
        (index, name)
        for index, values in moments.items()
        for name, value in values.items()
        if isinstance(value, Tensor) and name != "step"
    ]
    means = average(ranks, [moments[index][name] for index, name in places], 1 / ranks.world_size)
    averaged = {index: dict(values) for index, values in moments.items()}
    for (index, name), mean in zip(places, means, strict=True):
        averaged[index][name] = mean
    return averaged


def on_host(value: Any) -> Any:
    """Return ``value`` with its tensors on the host, where another rank can load them."""
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: on_host(each) for key, each in value.items()}
    return [on_host(each) for each in value] if isinstance(value, list) else value
