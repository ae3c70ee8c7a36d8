"""Evaluation: every item of the eval split once, each on one rank, on the model without its wrapper.

Each rank takes a contiguous share of the split; sums and weights are added up over ranks, and divided once. There is
no padding, so no item counts twice; a rank without items takes part with nothing.

Not here: which metrics there are (``Task.evaluate``, ``Task.finalize``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from domain import metrics
from domain.outcomes import Reason
from domain.plan import part
from engine import randomness
from engine.errors import EngineError
from engine.loader import Item, SeededItems, micro_batches
from engine.pulse import Pulse
from engine.ranks import Ranks
from engine.step import to_device
from engine.task import Task


class _Share:
    """The items of this rank's micro-batches of the eval split."""

    def __init__(self, size: int, ranks: Ranks, micro_batch_size: int):
        self._bounds = part(size, ranks.world_size, ranks.rank)
        self._micro_batch_size = micro_batch_size

    def __iter__(self) -> Iterator[list[Item]]:
        start, stop = self._bounds
        for first in range(start, stop, self._micro_batch_size):
            yield [(0, item) for item in range(first, min(first + self._micro_batch_size, stop))]


def evaluate(
    task: Task,
    model: nn.Module,
    dataset: Dataset[Any],
    ranks: Ranks,
    *,
    micro_batch_size: int,
    seed: int,
    workers: int,
    pulse: Pulse,
) -> dict[str, float]:
    """The task's eval metrics. All ranks must call this.

    The host's generators are used, so the loader's thread must be idle.
    """
    size = len(dataset)  # type: ignore[arg-type] # a map-style dataset has a length, which torch's type does not say
    loader = micro_batches(
        SeededItems(dataset, seed, randomness.EVAL_ITEM),
        _Share(size, ranks, micro_batch_size),
        task.collate,
        workers=workers,
        ahead=2,
        pin=ranks.device.type == "cuda",
    )
    sums: dict[str, Tensor] = {}
    weights: dict[str, float] = {}
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for index, batch in enumerate(loader):
                pulse.mark("eval")  # An evaluation may take long, but not a micro-batch of it.
                slot_seed = randomness.seed_of(randomness.EVAL_SLOT, seed, ranks.rank, index)
                randomness.seed_device(slot_seed, ranks.device)
                randomness.seed_host(slot_seed)
                for name, (total, weight) in task.evaluate(model, to_device(batch, ranks.device)).items():
                    total64 = torch.as_tensor(total).detach().to(ranks.device, torch.float64)
                    sums[name] = sums[name] + total64 if name in sums else total64
                    weights[name] = weights.get(name, 0.0) + float(weight)
    finally:
        model.train(was_training)
    means = _means(ranks.gather({name: (float(sums[name]), weights[name]) for name in sums}))
    return {checked_name(name): float(value) for name, value in task.finalize(means).items()}


def checked_name(name: str) -> str:
    """A task's name for a number, if it can be a metric's."""
    if not metrics.NAME.fullmatch(f"eval/{name}"):
        raise EngineError(
            Reason.BAD_SPEC, f"{name!r} is no name for a metric: letters, digits, '_', '.', '/', ' ' and '-'"
        )
    return name


def _means(shares: list[dict[str, tuple[float, float]]]) -> dict[str, float]:
    """Each name's sum over its weight, over all ranks; names that nothing counted for are left out."""
    means = {}
    for name in sorted({name for share in shares for name in share}):
        found = [share[name] for share in shares if name in share]
        weight = math.fsum(weight for _, weight in found)
        if weight > 0:
            means[name] = math.fsum(total for total, _ in found) / weight if _finite(found) else math.nan
    return means


def _finite(found: list[tuple[float, float]]) -> bool:
    return all(math.isfinite(total) for total, _ in found)
