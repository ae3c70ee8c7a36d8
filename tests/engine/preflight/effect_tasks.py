"""Tasks whose calls have effects that the sum of their losses does not show."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.runtime.ranks import Ranks
from tests.engine.cases import planned
from tests.engine.preflight.coupled_tasks import Wide, losses
from tests.engine.preflight.loss_tasks import CLASSES
from tests.engine.spool import events
from tests.engine.start_cases import OPTIONS


class _Scaled(torch.autograd.Function):
    """The identity, with a rule for its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rule: Any) -> Tensor:  # type: ignore[override]
        ctx.rule = rule
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        return ctx.rule(gradient), None


class Net(nn.Module):
    """Two layers, with a rule for the gradient between them."""

    def __init__(self, rule: Any = lambda gradient: gradient):
        super().__init__()
        self.first, self.head, self.rule = nn.Linear(4, 4), nn.Linear(4, CLASSES), rule
        self.calls = 0

    def between(self, x: Tensor) -> Tensor:
        return _Scaled.apply(x, self.rule)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.between(self.first(x)))
        return found


class Changed(Wide):
    """Its model has a rule for a gradient."""

    def __init__(self, rule: Any):
        self.gradient = rule

    def model(self) -> nn.Module:
        return Net(self.gradient)


class Hooked(Wide):
    """The rule is a hook of a module."""

    def __init__(self, rule: Any):
        self.gradient = rule

    def model(self) -> nn.Module:
        model = Net()
        model.head.register_full_backward_hook(
            lambda _, given, __: tuple(self.gradient(each) for each in given)
        )
        return model


class NoisyGradient(Wide):
    """Draws a factor of its gradient, which its value does not show."""

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        return each.sum() + torch.rand(()) * (out - out.detach()).sum()


class Reversed(Wide):
    """The reversal of a gradient grows with the calls."""

    class Model(Net):
        def between(self, x: Tensor) -> Tensor:
            self.calls += 1
            return _Scaled.apply(x, lambda g: -g * min(1.0, self.calls / 700))  # type: ignore[no-any-return]

    def model(self) -> nn.Module:
        return self.Model()


class Detached(Reversed):
    """Detaches in every second call."""

    class Model(Net):
        def between(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x.detach() if self.calls // 2 % 2 else x  # Each loss calls twice.


class MovedBackwards(Reversed):
    """Counts in backward, and reads in the next forward."""

    class Model(Net):
        def between(self, x: Tensor) -> Tensor:
            def rule(gradient: Tensor) -> Tensor:
                self.calls += 1
                return gradient

            return _Scaled.apply(x, rule) * min(2.0, 1 + self.calls / 10_000)


class Left(Wide):
    """Its penalty reads what the loss left behind."""

    last = 0.0

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        self.last = float(batch[0].mean())
        return each.sum()

    def penalty(self, model: nn.Module) -> Tensor:
        return self.last * sum(p.square().sum() for p in model.parameters())  # type: ignore[return-value]


class Weighing(Wide):
    """Its loss reads what another method counts."""

    def __init__(self, method: str):
        self.method, self.calls = method, 0

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        return each.sum() * (2 if self.calls > 500 else 1)

    def count(self, method: str) -> None:
        self.calls += method == self.method

    def weight(self, batch: Any) -> Any:
        self.count("weight")
        return super().weight(batch)

    def collate(self, samples: list[Any]) -> Any:
        self.count("collate")
        return super().collate(samples)

    def evaluate(self, model: nn.Module, batch: Any) -> Any:
        self.count("evaluate")
        return {"one": (batch[0].sum() * 0, 1.0)}


class Smoothed(Wide):
    """Evaluates with an average of its weights, which loss() moves."""

    def __init__(self) -> None:
        self.average: dict[str, Tensor] = {}

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        self.average["out"] = 0.9 * self.average.get("out", out.detach().mean(0)) + 0.1 * out.mean(
            0
        )
        self.average = {name: value.detach() for name, value in self.average.items()}
        return each.sum()

    def evaluate(self, model: nn.Module, batch: Any) -> Any:
        return {"near": ((model(batch[0]) - self.average["out"]).square().sum(), 1.0)}


class Heads(Wide):
    """Drops only in the head of the last class."""

    def __init__(self, draws: bool = False):
        self.draws = draws

    def model(self) -> nn.Module:
        return nn.ModuleDict({"head": nn.Linear(4, CLASSES), "drop": nn.Dropout(0.5)})

    def loss(self, model: Any, batch: Any) -> Any:
        x, y = batch
        late = y == CLASSES - 1
        if late.any():
            scale = torch.rand(len(x), 1) if self.draws else model["drop"](torch.ones(len(x), 1))
            x = torch.where(late[:, None], x * scale, x)
        return nn.functional.cross_entropy(model["head"](x), y, reduction="sum")


class OnTheFirstRank(Wide):
    """prepare() sets an attribute, which other ranks lack."""

    scale = 1.0

    def prepare(self) -> None:
        self.scale = 2.0

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        return each.sum() * self.scale


class OfARank(Wide):
    """Holds what differs by rank, and reads some of it in its loss."""

    def __init__(self, rank: int, reads: str):
        self.rank, self.reads, self.noise = rank, reads, random.Random(rank)
        self.log = Path(f"log-{rank}") if rank == 0 else None
        self.started, self.bias = time.time(), torch.tensor([float(rank)])
        if rank == 0:
            self.board = Net()

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        found = {
            "": 1.0,
            "rank": self.rank + 1.0,
            "noise": self.noise.random(),
            "bias": self.bias.sum(),
            "board": 2.0 if hasattr(self, "board") else 1.0,
        }
        return each.sum() * found[self.reads]


class InAWorld(Wide):
    """Reads the rank or the number of ranks, or communicates, as code of other programs does."""

    def __init__(self, kind: str):
        self.kind, self.log = kind, ""

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        return each.sum() * self.factor() if self.kind != "evaluate" else each.sum()

    def evaluate(self, model: nn.Module, batch: Any) -> Any:
        factor = self.factor() if self.kind == "evaluate" else 1.0
        return {"sum": (losses(model, batch).sum() * factor, 1.0)}

    def factor(self) -> float:
        if self.kind == "environment":
            return 1.0 + int(os.environ.get("LOCAL_RANK", "0"))
        if not dist.is_initialized():
            return 1.0
        found = torch.ones(1) * dist.get_rank()
        if self.kind == "log":
            self.log = f"rank {dist.get_rank()}"
            return 1.0
        if self.kind != "rank":
            dist.all_reduce(found)
        return 1.0 + float(found)


def warnings_by_rank(ranks: Ranks, kind: Any, folder: Path, words: str) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    task = OfARank(ranks.rank, kind) if isinstance(kind, str) else kind()
    plan, spec = planned({**OPTIONS, "steps": 1, "eval": {"every_steps": 1}}, ranks.world_size)
    with mock.patch.dict(os.environ, LOCAL_RANK=str(ranks.rank)):
        Trainer(spec, plan, task, ranks, folder).run()
    return [e["message"] for e in events(folder, "warning") if words in e["message"]]
