"""Tasks for ``tests.engine.strategies.test_trained_models``, in a module that the pool's ranks can
import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from lockstep.engine.checkpoints import checkpoint
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from tests.engine.start_cases import Line, train


class Gaps(Line):
    """A weight that is every second column of a larger tensor."""

    def model(self) -> nn.Module:
        layer = nn.Linear(2, 1)
        layer.weight = nn.Parameter(torch.ones(1, 4)[:, ::2])
        return layer


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 1)
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x) * self.scale
        return found


class Scalar(Line):
    def model(self) -> nn.Module:
        return Scaled()


class WithEmpty(Scaled):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([0.5]))
        self.empty = nn.Parameter(torch.zeros(0, 3))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.empty.sum()


class Empty(Line):
    """Parameter without numbers, such as the embedding of no additional tokens."""

    def model(self) -> nn.Module:
        return WithEmpty()


class Synchronised(Line):
    batch_dependent = True

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(2, 4), nn.SyncBatchNorm(4), nn.Linear(4, 1))


class Penalized(Line):
    """Penalty on the gradient with respect to the inputs, through two blocks."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))

    def loss(self, model: nn.Module, batch: Any) -> Any:
        x, y = batch
        x = x.requires_grad_()
        out = model(x).squeeze(-1)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return ((out - y) ** 2).sum() + (slope**2).sum()


class Whole(Penalized):
    """The same, gathered as a whole."""

    conditional = True


class FirstBatch(Line):
    """Takes the first values of its shift from the first batch."""

    def model(self) -> nn.Module:
        model: Any = nn.Linear(2, 1)
        model.shift = nn.Parameter(torch.zeros(2))
        model.register_buffer("begun", torch.zeros(()))
        model.register_parameter("last", nn.Parameter(torch.ones(1)))
        return model

    def loss(self, model: Any, batch: Any) -> Any:
        x, y = batch
        if not model.begun:
            with torch.no_grad():
                model.shift.copy_(-x.mean(0))
                model.begun.fill_(1)
        return super().loss(model, (x + model.shift, y * model.last))


class NewWeight(Line):
    """Puts another parameter in the place of its weight."""

    def loss(self, model: Any, batch: Any) -> Any:
        if not hasattr(self, "made"):
            self.made = model.weight = nn.Parameter(model.weight.detach().clone())
        return super().loss(model, batch)


class OwnHead(Line):
    """A head of the task, without which the loss has no gradient for it."""

    def __init__(self) -> None:
        self.head = nn.Linear(1, 1)

    def loss(self, model: nn.Module, batch: Any) -> Any:
        x, y = batch
        return ((self.head(model(x)).squeeze(-1) - y) ** 2).sum()


class LateScale(Line):
    """A scale that is created at the first call."""

    def loss(self, model: nn.Module, batch: Any) -> Any:
        x, y = batch
        if not hasattr(self, "kept"):
            self.kept = {"scale": torch.ones((), requires_grad=True)}
        return (self.kept["scale"] * (model(x).squeeze(-1) - y) ** 2).sum()


class KeepsInput(Line):
    """Keeps the inputs of its last call, which receive a gradient."""

    def loss(self, model: nn.Module, batch: Any) -> Any:
        x, y = batch
        self.x = x.clone().requires_grad_(torch.is_grad_enabled())
        return ((model(self.x).squeeze(-1) - y) ** 2).sum()


class Adversary(OwnHead):
    """A second model that the task trains itself, inside loss()."""

    def loss(self, model: nn.Module, batch: Any) -> Any:
        x, y = batch
        out = model(x)
        if torch.is_grad_enabled():
            self.head(out.detach()).square().sum().backward()
            self.head.zero_grad()
        return ((out.squeeze(-1) - y) ** 2).sum() + 0.0 * self.head(out.detach()).sum().detach()


class FrozenBase(Line):
    """A frozen base in 16 bits below a trained head."""

    def model(self) -> nn.Module:
        base = nn.Linear(2, 4).to(torch.bfloat16).requires_grad_(False)
        return nn.ModuleDict({"base": base, "head": nn.Linear(4, 1)})

    def loss(self, model: Any, batch: Any) -> Any:
        x, y = batch
        hidden = model["base"](x.to(torch.bfloat16)).float()
        return ((model["head"](hidden).squeeze(-1) - y) ** 2).sum()


class Pictures(Line):
    """Convolution over pictures of 2 × 2."""

    def __init__(self, layout: torch.memory_format) -> None:
        self.layout = layout

    def model(self) -> nn.Module:
        layers = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(3, 1))
        return layers.double().to(memory_format=self.layout)

    def dataset(self, split: str) -> Dataset[Any]:
        return TensorDataset(
            torch.arange(96.0, dtype=torch.float64).view(12, 2, 2, 2) / 96,
            torch.arange(12.0, dtype=torch.float64) / 12,
        )


def pictures(
    ranks: Ranks, layout: torch.memory_format, folder: Path, strategy: str
) -> dict[str, Tensor]:
    """Return the final state of a run."""
    options = {
        "strategy": {"name": strategy},
        "optimizer": {"name": "adamw", "lr": 0.01},
        "steps": 6,
        "checkpoint": {"every_steps": 2},
    }
    train(Pictures(layout), folder, ranks, **options)
    model: dict[str, Tensor] = checkpoint.load(folder / "checkpoints/step-00000006")["model"]
    return model


def ended(ranks: Ranks, task: type[Line], folder: Path, strategy: str) -> str:
    """Return the refusal of a run; empty if it trains."""
    try:
        train(task(), folder, ranks, strategy={"name": strategy})
    except EngineError as error:
        return f"{error.reason}: {error}"
    return ""
