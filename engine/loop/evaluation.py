"""Evaluation of every item of the eval split once, each on one rank, without wrapper.

Each rank takes a contiguous shard of the split; sums and weights are added up over ranks, and
divided once. So no item counts twice, and a rank without items takes part with nothing. Where ranks
wait for each other in every forward (sharded parameters), those whose shard is used up run one more
sample each time, whose sums are dropped.

Not here: which metrics there are (``Task.evaluate``, ``Task.finalize``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from lockstep.domain.spec.batch import ceil_div
from lockstep.domain.training import metrics
from lockstep.domain.training.plan import part
from lockstep.engine.data.fetching import Fetcher, Item, micro_batches
from lockstep.engine.model.modes import evaluating
from lockstep.engine.parallel.pipeline import Pipeline
from lockstep.engine.runtime import randomness
from lockstep.engine.runtime.device import is_accelerator, to_device
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.runtime.heartbeat import Heartbeat
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.strategies.base import Strategy


class _Share:
    """The items of this rank's micro-batches of the eval split.

    ``equally`` makes them as many as those of any rank.
    """

    def __init__(self, size: int, ranks: Ranks, micro_batch_size: int, *, equally: bool):
        self._bounds = start, stop = part(size, ranks.world_size, ranks.rank)
        self._micro_batch_size = micro_batch_size
        self.counted = ceil_div(stop - start, micro_batch_size)
        """Number of leading micro-batches that count."""
        _, most = part(size, ranks.world_size, 0)
        self._surplus = ceil_div(most, micro_batch_size) - self.counted if equally else 0

    def __iter__(self) -> Iterator[list[Item]]:
        start, stop = self._bounds
        for first in range(start, stop, self._micro_batch_size):
            yield [(0, item) for item in range(first, min(first + self._micro_batch_size, stop))]
        for _ in range(self._surplus):
            yield [(0, stop - 1)]


def evaluate(
    strategy: Strategy,
    dataset: Dataset[Any],
    ranks: Ranks,
    *,
    micro_batch_size: int,
    seed: int,
    workers: int,
    heartbeat: Heartbeat,
    pipeline: Pipeline | None = None,
) -> dict[str, float]:
    """The task's eval metrics; none, where nothing in the split has any weight.

    In a pipeline the last stage alone has them.

    All ranks must call this.

    The host's generators are used, so the loader's thread must be idle.
    """
    task, model = strategy.objective.task, strategy.model
    size = len(dataset)  # type: ignore[arg-type] # a map-style dataset has a length, which torch's type omits
    shard = _Share(size, ranks, micro_batch_size, equally=strategy.kind.collective_forward)
    loader = micro_batches(
        Fetcher(dataset, task.collate, seed=seed, purpose=randomness.EVAL_ITEM),
        shard,
        workers=workers,
        ahead=2,
        pin=is_accelerator(ranks.device),
    )
    sums: dict[str, Tensor] = {}
    weights: dict[str, float] = {}
    with evaluating(model), strategy.evaluation() as evaluation, torch.no_grad():
        for index, batch in enumerate(loader):
            heartbeat.mark("eval")  # An evaluation may take long, but not a micro-batch of it.
            micro_batch_seed = randomness.seed_of(
                randomness.EVAL_MICRO_BATCH, seed, ranks.rank, index
            )
            randomness.seed_device(micro_batch_seed, ranks.device)
            randomness.seed_host(micro_batch_seed)
            on_device = to_device(batch, ranks.device)
            if pipeline is None:
                found = evaluation(on_device)
            else:
                found = pipeline.evaluate(evaluation, on_device)
            for name, (total, weight) in found.items() if index < shard.counted else ():
                total64 = torch.as_tensor(total).detach().to(ranks.device, torch.float64)
                sums[name] = sums[name] + total64 if name in sums else total64
                weights[name] = weights.get(name, 0.0) + float(weight)
    means = _means(ranks.gather({name: (float(sums[name]), weights[name]) for name in sums}))
    return (
        {checked_name(name): float(value) for name, value in task.finalize(means).items()}
        if means
        else {}
    )


def checked_name(name: str) -> str:
    """A task's name for a number, if it can be a metric's."""
    if not metrics.NAME.fullmatch(f"eval/{name}"):
        raise BadSpecError(
            f"{name!r} is not a metric name: expected letters, digits, '_', '.', '/', ' ' and '-'",
        )
    return name


def _means(shards: list[dict[str, tuple[float, float]]]) -> dict[str, float]:
    """Each name's sum over its weight, over all ranks.

    Names that nothing counted for are left out.
    """
    means = {}
    for name in sorted({name for shard in shards for name in shard}):
        found = [shard[name] for shard in shards if name in shard]
        weight = math.fsum(weight for _, weight in found)
        if weight > 0:
            means[name] = (
                math.fsum(total for total, _ in found) / weight if _finite(found) else math.nan
            )
    return means


def _finite(found: list[tuple[float, float]]) -> bool:
    return all(math.isfinite(total) for total, _ in found)
