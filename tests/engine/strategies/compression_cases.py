"""Runs of ranks with compressed gradients: one layer's, step by step, and lost error feedback."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from lockstep.domain.spec.job import Strategy
from lockstep.engine.data import order
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.strategies.experimental.powersgd import _Memory
from tests.engine import toy as toys

ROWS, COLUMNS = 16, 24


def own_gradient(rank: int) -> torch.Tensor:
    return torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(rank))


def steps(
    ranks: Ranks,
    scales: list[float],
    powersgd_rank: int = 1,
    *,
    forget: bool = False,
    repair: bool = True,
) -> list[torch.Tensor]:
    """Return PowerSGD's results for one layer's gradient; each step's is the same on its rank,
    times a factor."""
    layer = torch.nn.Linear(COLUMNS, ROWS, bias=False)
    torch.nn.init.zeros_(layer.weight)
    options = Strategy(compression="powersgd", powersgd_start_step=0, powersgd_rank=powersgd_rank)
    wrapped = DistributedDataParallel(layer, process_group=ranks.device_group)
    assert ranks.device_group is not None
    memory = _Memory(ranks.device_group, options, ranks.device, warm_up_passes=2)
    wrapped.register_comm_hook(memory, lambda memory, bucket: memory.reduce(bucket))
    found = []
    for scale in [0.0, 0.0, *scales]:
        layer.weight.grad = None
        if forget:
            memory._inner.error_dict.clear()
        with contextlib.nullcontext() if repair else mock.patch.object(_Memory, "_mend"):
            (wrapped(torch.eye(COLUMNS)).T * own_gradient(ranks.rank) * scale).sum().backward()
        assert layer.weight.grad is not None
        found.append(layer.weight.grad.clone())
    return found[2:]


@contextlib.contextmanager
def not_restored(*parts: str) -> Iterator[None]:
    """Resume a run without some parts of the error feedback."""
    load = _Memory.load

    def partly(self: _Memory, state: dict[str, Any]) -> None:
        load(self, state | {part: 0 if part == "steps" else {} for part in parts})

    with mock.patch.object(_Memory, "load", partly):
        yield


def weightless(step: int, *, batch_size: int, size: int, seed: int = 1337) -> Any:
    """Dataset in which every sample of one batch (``step`` counts from 0) is masked."""

    def masked(x: Tensor, y: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x, y, torch.zeros_like(mask)

    return _changed(masked, step, batch_size=batch_size, size=size, seed=seed)


def without_numbers(step: int, *, batch_size: int, size: int, seed: int = 1337) -> Any:
    """Dataset in which the targets of one batch are NaN."""

    def spoilt(x: Tensor, y: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x, torch.full_like(y, math.nan), mask

    return _changed(spoilt, step, batch_size=batch_size, size=size, seed=seed)


@contextlib.contextmanager
def _changed(
    change: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]],
    step: int,
    *,
    batch_size: int,
    size: int,
    seed: int,
) -> Iterator[None]:
    first = step * batch_size
    changed = {index for _, index in order.samples(first, first + batch_size, size=size, seed=seed)}
    real = toys.item

    def item(toy: toys.Toy, index: int) -> Any:
        ids, *parts = real(toy, index)
        return (ids, *(change(*parts) if index in changed else parts))

    with mock.patch.object(toys, "item", item):
        yield
