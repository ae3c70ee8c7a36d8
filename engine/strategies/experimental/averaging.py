"""Averages over ranks, for strategies whose ranks differ.

Not here: when ranks are averaged, and by which weights (``engine.strategies.experimental.local_sgd``).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lockstep.engine.runtime.ranks import Ranks


def average(ranks: Ranks, tensors: list[Tensor], weight: float) -> list[Tensor]:
    """The ranks' tensors, each times its rank's weight, added up. Equal on all ranks. All ranks must call this.

    They travel in one message per number format, which takes as much memory as they do.

    Parameters
    ----------
    ranks : Ranks
    tensors : list of Tensor
        As many, of the same shapes and formats, on every rank.
    weight : float
        This rank's; all ranks' together are 1.
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
    """An optimizer's state by parameter, with every rank counting the same; step counters are this rank's.

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
    """``value`` with the tensors in it on the host: a rank has no other's device."""
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: on_host(each) for key, each in value.items()}
    return [on_host(each) for each in value] if isinstance(value, list) else value
