"""Tasks and runs for ``tests.engine.loop.test_start``, in a module that the pool's ranks can import."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset, random_split

from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.interface import Task
from tests.engine.cases import planned

OPTIONS: dict[str, Any] = {
    "batch": {"size": 4, "micro_size": 2},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "clip_grad_norm": None,
    "steps": 3,
}


class Line(Task):
    """Linear fit."""

    def model(self) -> nn.Module:
        return nn.Linear(2, 1)

    def dataset(self, split: str) -> Dataset[Any]:
        return TensorDataset(torch.arange(24.0).view(12, 2) / 24, torch.arange(12.0) / 12)

    def loss(self, model: nn.Module, batch: Any) -> Any:
        x, y = batch
        return ((model(x).squeeze(-1) - y) ** 2).sum()


def train(task: Task, folder: Path, ranks: Ranks | None = None, **more: Any) -> Trainer:
    ranks = ranks or Ranks()
    plan, spec = planned(OPTIONS | more, ranks.world_size)
    trainer = Trainer(spec, plan, task, ranks, folder)
    trainer.run()
    return trainer


# --- splits


class Divided(Line):
    """Splits its data by a random draw, once per split."""

    hidden = 3

    def __init__(self) -> None:
        self.items: dict[str, list[int]] = {}

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(2, self.hidden), nn.Linear(self.hidden, 1))

    def divide(self, whole: Dataset[Any], split: str) -> Subset[Any]:
        return random_split(whole, [8, 4])[split == "eval"]

    def dataset(self, split: str) -> Dataset[Any]:
        part = self.divide(super().dataset(split), split)
        self.items[split] = list(part.indices)
        return part


class DividedByNumpy(Divided):
    def divide(self, whole: Dataset[Any], split: str) -> Subset[Any]:
        order = np.random.permutation(12)
        return Subset(whole, order[8:].tolist() if split == "eval" else order[:8].tolist())


class Wider(Divided):
    hidden = 50


def divided_on(ranks: Ranks, folder: Path) -> dict[str, list[int]]:
    task = Divided()
    train(task, folder, ranks, eval={"every_steps": 3})
    return task.items


# --- datasets that are refused


class StreamWithLength(IterableDataset[Any]):
    def __len__(self) -> int:
        return 12

    def __iter__(self) -> Any:
        return iter(TensorDataset(torch.zeros(12, 2), torch.zeros(12)))


class NoItems:
    def __len__(self) -> int:
        return 12


# --- weights, gradients and memory


class TimeFirst(Line):
    """Its batches have the time as their first dimension."""

    def collate(self, samples: list[Any]) -> Any:
        return torch.stack([x for x, _ in samples], 1)[..., None], torch.stack(
            [y for _, y in samples]
        )

    def loss(self, model: nn.Module, batch: Any) -> Any:
        x_TB1, y_B = batch
        return ((model(x_TB1.squeeze(-1).T).squeeze(-1) - y_B) ** 2).sum()


class Sparse(Line):
    def model(self) -> nn.Module:
        return nn.ModuleDict({"words": nn.Embedding(12, 3, sparse=True), "out": nn.Linear(3, 1)})

    def dataset(self, split: str) -> Dataset[Any]:
        return TensorDataset(torch.arange(12), torch.arange(12.0))

    def loss(self, model: Any, batch: Any) -> Any:
        return ((model["out"](self.hidden(model, batch[0])).squeeze(-1) - batch[1]) ** 2).sum()

    def hidden(self, model: Any, words: Tensor) -> Tensor:
        found: Tensor = model["words"](words)
        return found


class SparseByHand(Sparse):
    def model(self) -> nn.Module:
        return nn.ModuleDict({"words": nn.Embedding(12, 3), "out": nn.Linear(3, 1)})

    def hidden(self, model: Any, words: Tensor) -> Tensor:
        return F.embedding(words, model["words"].weight, sparse=True)


class TooLarge(Line):
    """One sample does not fit into memory."""

    def loss(self, model: nn.Module, batch: Any) -> Any:
        raise MemoryError


# --- BatchNorm


class Normed(Line):
    """One value per channel and sample, so that a single sample has no variance."""

    batch_dependent: ClassVar[bool] = True

    def model(self) -> nn.Module:
        torch.manual_seed(5)
        self.built = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        return self.built


def by_hand(batches: list[list[list[int]]]) -> dict[str, Tensor]:
    """Train the same model in a plain loop on one rank: micro-batches of each batch, by number of
    item."""
    task = Normed()
    data: Any = task.dataset("train")
    model = task.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for micro_batches in batches:
        optimizer.zero_grad()
        for micro_batch in micro_batches:
            x, y = data[micro_batch]
            (task.loss(model, (x, y)) / sum(map(len, micro_batches))).backward()
        optimizer.step()
    return model.state_dict()


class Watched(Normed):
    """Records the items of each micro-batch."""

    def __init__(self) -> None:
        self.micro_batches: list[list[int]] = []

    def loss(self, model: nn.Module, batch: Any) -> Any:
        self.micro_batches.append((batch[1] * 12).round().long().tolist())
        return super().loss(model, batch)


def normed_on(ranks: Ranks, folder: Path, more: dict[str, Any]) -> dict[str, Tensor]:
    task = Normed()
    train(task, folder, ranks, **more)
    return {name: value.clone() for name, value in task.built.state_dict().items()}


def trained_on(ranks: Ranks, task: type[Task], folder: Path) -> None:
    train(task(), folder, ranks)
