"""Observations of shards on ranks of the pool: sizes, unsharded parameters, and refusals."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from lockstep.domain.spec.job import Strategy as Section
from lockstep.engine.model.objective import Objective
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.strategies.fsdp import FSDP
from tests.engine import cases
from tests.engine.toy import Toy, ToyTask


def sizes(ranks: Ranks, shard: int | None) -> tuple[int, int]:
    """Return the numbers in this rank's parameters, gradients and moments after a step, and in the
    whole model's parameters."""
    task = ToyTask(Toy(blocks=4, width=32))
    model = task.model()
    whole = sum(parameter.numel() for parameter in model.parameters())
    strategy = FSDP(Objective(task, model), ranks, Section(name="fsdp", shard=shard))
    optimizer = strategy.optimizer(torch.optim.AdamW, [{"params": list(model.parameters())}])
    strategy.forward(task.collate([task.dataset("train")[5]]), {"loss": 1.0}, penalize=True)[
        0
    ].backward()
    optimizer.step()
    kept: list[Any] = [*model.parameters(), *(parameter.grad for parameter in model.parameters())]
    kept += [
        state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")
    ]
    return sum(tensor.to_local().numel() for tensor in kept), whole


@contextlib.contextmanager
def left_out(name: str, *, rank: int | None, last: bool) -> Iterator[None]:
    """Leave the model of ``rank`` (None: of all) without a gradient for a parameter in its last
    micro-batch of each step, or in the others."""
    forward = Objective.forward

    def partly(self: Objective, batch: Any, scales: Any, *, penalize: bool) -> Any:
        if scales is None or penalize is not last or rank not in {None, dist.get_rank()}:
            return forward(self, batch, scales, penalize=penalize)
        with mock.patch.dict(
            self.model._parameters, {name: self.model.get_parameter(name).detach()}
        ):
            return forward(self, batch, scales, penalize=penalize)

    with mock.patch.object(Objective, "forward", partly):
        yield


def left_whole(ranks: Ranks, toy: Toy, settings: dict[str, Any], folder: Path) -> list[str]:
    """Return the parameters that are not sharded after a run."""
    built: list[nn.Module] = []
    build = ToyTask.model

    def model(self: ToyTask) -> nn.Module:
        built.append(build(self))
        return built[-1]

    with mock.patch.object(ToyTask, "model", model):
        cases.train(ranks, toy, settings, folder)
    return [name for name, value in built[0].named_parameters() if not isinstance(value, DTensor)]


class Shrinking(ToyTask):
    """Has a penalty on all parameters, including those of blocks, which are sharded outside of the
    block's forward."""

    def penalty(self, model: nn.Module) -> torch.Tensor:
        return torch.stack([(parameter**2).sum() for parameter in model.parameters()]).sum() * 0.1


class Peeking(ToyTask):
    """Its loss reads a block's parameters."""

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, batch) + (model.get_parameter("blocks.0.mix.weight") ** 2).sum()


def penalized(ranks: Ranks, toy: Toy, settings: dict[str, Any], folder: Path) -> cases.Seen:
    with mock.patch.object(cases, "toy_task", Shrinking):
        return cases.train(ranks, toy, settings, folder)


def refusal(ranks: Ranks, kind: str) -> str:
    """Return the refusal of a model or a task that cannot be sharded."""
    toy = Toy(blocks=2)
    task = Peeking(toy) if kind == "peeking" else ToyTask(toy)
    model = task.model()
    if kind == "scalar":
        model.scale = nn.Parameter(torch.ones((), dtype=toy.dtype))
    elif kind == "mixed":
        model.out = model.out.float()
    try:
        strategy = FSDP(Objective(task, model), ranks, Section(name="fsdp"))
        strategy.forward(task.collate([task.dataset("train")[5]]), {"loss": 1.0}, penalize=True)
    except EngineError as error:
        return f"{error.reason}: {error}"
    return ""
