"""Ranks that build or hold another model than the others, for ranks of the pool."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook

from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.step import replicas
from lockstep.engine.step.replicas import ReplicaCheck
from tests.engine import toy
from tests.engine.toy import Toy


def net(**changes: Any) -> nn.Module:
    torch.manual_seed(0)
    return nn.ModuleDict(
        {name: changes.get(name) or nn.Linear(3, 3) for name in changes.get("order", "abc")}
    )


def differing(ranks: Ranks, kind: str, odd: int) -> None:
    """Start with a different model on one rank."""
    changes: dict[str, Any] = {}
    if ranks.rank == odd:
        changes = {
            "order": {"order": "acb"},
            "shape": {"b": nn.Linear(3, 4)},
            "dtype": {"b": nn.Linear(3, 3).double()},
            "fewer": {"order": "ab"},
            "frozen": {"b": nn.Linear(3, 3).requires_grad_(False)},
        }.get(kind, {})
    model = net(**changes)
    if ranks.rank == odd and kind == "value":
        nudge(model["b"].weight)  # type: ignore[index]
    ReplicaCheck(model, ranks).at_start()


def under_ddp_alone(ranks: Ranks) -> dict[str, torch.Tensor]:
    """Return the gradient of a model whose layers have another order on rank 1."""
    model = net(order="acb" if ranks.rank else "abc")
    model.forward = lambda x: model["c"](model["b"](x)).sum()  # type: ignore[index, method-assign]
    model["a"].requires_grad_(False)  # type: ignore[index]
    wrapped = DistributedDataParallel(model, process_group=ranks.device_group)
    wrapped(torch.ones(2, 3)).backward()
    return {
        name: parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def nudge(parameter: torch.Tensor) -> None:
    """Change one number to its neighbour."""
    with torch.no_grad():
        first = parameter.view(-1)[:1]
        first.copy_(torch.nextafter(first, torch.full_like(first, math.inf)))


@contextlib.contextmanager
def swapped_on_the_last_rank() -> Iterator[None]:
    """Register two layers of equal shapes in another order on the last rank."""
    initial, rank = toy.initial, torch.distributed.get_rank()

    def swapped(which: Toy) -> Any:
        model = initial(which)
        if rank == 1:
            model._modules = dict(reversed(model._modules.items()))
        return model

    with mock.patch.object(toy, "initial", swapped):
        yield


@contextlib.contextmanager
def nudged(rank: int, step: int, name: str) -> Iterator[None]:
    """Change one number of one rank to its neighbour after ``step``."""
    counted = [0]

    def moved(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        counted[0] += 1
        if counted[0] == step and torch.distributed.get_rank() == rank:
            names = dict(trained[0].named_parameters())
            nudge(names[name])

    trained: list[nn.Module] = []
    initial = toy.initial

    def noting(which: Toy) -> Any:
        trained.append(initial(which))
        return trained[0]

    hook = register_optimizer_step_post_hook(moved)
    try:
        with mock.patch.object(toy, "initial", noting):
            yield
    finally:
        hook.remove()


@contextlib.contextmanager
def nudged_at_13() -> Iterator[None]:
    with nudged(1, 13, "out.weight"):
        yield


@contextlib.contextmanager
def nudged_before_the_checkpoint() -> Iterator[None]:
    with nudged(0, 4, "hidden.bias"):
        yield


@contextlib.contextmanager
def never_compared() -> Iterator[None]:
    with nudged(1, 25, "out.weight"), mock.patch.object(ReplicaCheck, "compare"):
        yield


def intervals(ranks: Ranks, step_seconds: list[float], cost_seconds: list[float]) -> list[int]:
    """Return the steps after which a run of 300 compares, with a clock that the test sets."""
    now = [0.0]
    check = ReplicaCheck(net(), ranks, clock=lambda: now[0])
    spent = replicas.fingerprints

    def slow(parameters: Any) -> torch.Tensor:
        now[0] += cost_seconds[ranks.rank]
        return spent(parameters)

    compared = []
    with mock.patch.object(replicas, "fingerprints", slow):
        for step in range(1, 301):
            now[0] += step_seconds[ranks.rank]
            if check.due(step):
                check.compare(step)
                compared.append(step)
    return compared
