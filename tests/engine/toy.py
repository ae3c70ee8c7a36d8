"""A small task whose samples and weights a test can compute itself.

Item i is a function of i: features, targets, and a mask that counts between none and all of its
positions. A sample has its id, and the task records the ids of every micro-batch of its loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from lockstep.engine.task.dropout import Dropout
from lockstep.engine.task.interface import Task

POSITIONS = 5
FEATURES = 3


@dataclass(frozen=True)
class Toy:
    """Parameters of one toy task, for both the engine and the reference."""

    items: int = 40
    double: bool = True
    weigh: str = "tokens"
    """``tokens``: unmasked positions. ``samples``. ``terms``: a dict with both."""
    masked: str = "some"
    """``some``: item i has i mod (positions + 1) unmasked positions. ``all``: none has any.
    ``odd``: odd items have none."""
    penalty: float = 0.0
    buffer: bool = False
    noise: bool = False
    """True if items have random noise from the generator that the loader seeds."""
    dropout: float = 0.0
    """Rate of torch's dropout."""
    own_dropout: float = 0.0
    """Rate of the engine's dropout, in its place."""
    batch_norm: bool = False
    """True if the hidden layer is normalised over the micro-batch; such a task declares it."""
    width: int = 4
    blocks: int = 0
    """Residual blocks between the two layers, in an ``nn.ModuleList``."""
    stop_after: int | None = None
    """Request a stop after this number of fetched items."""
    log_items: str | None = None
    """File to which each fetched item adds a line."""

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64 if self.double else torch.float32


def item(toy: Toy, index: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (id, features (T, F), targets (T,), mask (T,)) of one item."""
    generator = torch.Generator().manual_seed(1000 + index)
    x = torch.randn(POSITIONS, FEATURES, dtype=toy.dtype, generator=generator)
    y = torch.randn(POSITIONS, dtype=toy.dtype, generator=generator)
    count = index % (POSITIONS + 1)
    if toy.masked == "all" or (toy.masked == "odd" and index % 2):
        count = 0
    mask = (torch.arange(POSITIONS) < count).to(toy.dtype)
    return torch.tensor(index), x, y, mask


class Items(Dataset[Any]):
    def __init__(self, toy: Toy, folder: Path | None):
        self.toy, self.folder, self.fetched = toy, folder, 0

    def __len__(self) -> int:
        return self.toy.items

    def __getitem__(self, index: int) -> Any:
        self.fetched += 1
        if self.toy.log_items is not None:
            with Path(self.toy.log_items).open("a") as file:
                file.write(f"{index}\n")
        if (
            self.toy.stop_after is not None
            and self.fetched == self.toy.stop_after
            and self.folder is not None
        ):
            (self.folder / "stop").touch()
        found = item(self.toy, index)
        if self.toy.noise:
            found = (found[0], found[1] + torch.rand(1, dtype=self.toy.dtype), *found[2:])
        return found


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + torch.tanh(self.mix(hidden))


class Net(nn.Module):
    """Two layers and a scale that is used twice, so that gradients add up inside one backward
    too."""

    def __init__(self, toy: Toy):
        super().__init__()
        self.hidden = nn.Linear(FEATURES, toy.width)
        self.out = nn.Linear(toy.width, 1)
        self.scale = nn.Parameter(torch.ones(1))
        self.dropout = Dropout(toy.own_dropout) if toy.own_dropout else nn.Dropout(toy.dropout)
        self.blocks = nn.ModuleList(Block(toy.width) for _ in range(toy.blocks))
        self.norm = nn.BatchNorm1d(toy.width) if toy.batch_norm else None
        if toy.buffer:
            self.register_buffer("calls", torch.zeros(1))
        self.to(toy.dtype)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and hasattr(self, "calls"):
            self.calls += 1
        hidden = self.scale * self.hidden(x)
        if self.norm is not None:
            hidden = self.norm(hidden.transpose(1, 2)).transpose(1, 2)
        hidden = torch.tanh(hidden)
        for block in self.blocks:
            hidden = block(hidden)
        return self.scale * self.out(self.dropout(hidden)).squeeze(-1)

    def size(self) -> Tensor:
        """Return a number by a method other than forward, as a task may call."""
        return (self.out.weight**2).sum()


def initial(toy: Toy) -> Net:
    """Return the model before training: the same for the engine and the reference."""
    torch.manual_seed(7)
    return Net(toy)


class ToyTask(Task):
    not_state = ("toy", "micro_batches")

    def __init__(self, toy: Toy, folder: Path | None = None):
        self.toy, self.folder = toy, folder
        self.micro_batches: list[list[int]] = []
        """Ids of every micro-batch of the training loss, the two masked warm-up passes first."""

    def model(self) -> nn.Module:
        self.built = initial(self.toy)
        return self.built

    def dataset(self, split: str) -> Dataset[Any]:
        return Items(self.toy, self.folder)

    def weight(self, batch: Any) -> float | dict[str, float]:
        tokens, samples = float(batch[3].sum()), float(len(batch[0]))
        return {"tokens": tokens, "samples": samples, "terms": {"fit": tokens, "mean": samples}}[
            self.toy.weigh
        ]

    def loss(self, model: nn.Module, batch: Any) -> Tensor | dict[str, Tensor]:
        ids, x, y, mask = batch
        if model.training:
            self.micro_batches.append(ids.tolist())
        fit = ((model(x) - y) ** 2 * mask).sum()
        if self.toy.weigh == "terms":
            return {"fit": fit, "mean": (model(x).mean(1) ** 2).sum() * 0.5}
        return fit

    def _penalty(self, model: nn.Module) -> Tensor:
        return self.toy.penalty * model.size()


class PenalizedToyTask(ToyTask):
    """Has a penalty, which must be a method of the class for the engine to find it."""

    def penalty(self, model: nn.Module) -> Tensor:
        return self._penalty(model)


class NormedToyTask(ToyTask):
    batch_dependent = True


def toy_task(toy: Toy, folder: Path | None = None) -> ToyTask:
    if toy.batch_norm:
        return NormedToyTask(toy, folder)
    return PenalizedToyTask(toy, folder) if toy.penalty else ToyTask(toy, folder)
