"""Task whose dataset is, or is not, the same on every rank.

Not here: the checks (``tests.engine.data.test_same_data``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.interface import Task
from tests.engine.cases import planned

X = torch.arange(40.0).view(20, 2) / 40


class Sharing(Task):
    """Divides the dataset itself, as a script under torchrun does."""

    def __init__(self, ranks: Ranks, kind: str):
        self.ranks, self.kind = ranks, kind

    def model(self) -> nn.Module:
        return nn.Linear(2, 1)

    def dataset(self, split: str) -> Dataset[Any]:
        rank, world_size = self.ranks.rank, self.ranks.world_size
        if self.kind == "shards":
            return TensorDataset(X[rank::world_size])
        if self.kind == "length" or (self.kind == "eval length" and split == "eval"):
            return TensorDataset(X[: len(X) - (rank == 1)])
        if self.kind == "random":
            return Random()
        return TensorDataset(X)

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        return (model(batch[0]) ** 2).sum()


class Random(Dataset[Any]):
    """Draws from a generator of its own, which differs in each process and at each access."""

    def __init__(self) -> None:
        self._own = torch.Generator()
        self._own.seed()

    def __len__(self) -> int:
        return 20

    def __getitem__(self, item: int) -> tuple[torch.Tensor]:
        return (torch.rand(2, generator=self._own),)


def trained(ranks: Ranks, kind: str, folder: Path) -> int:
    settings: dict[str, Any] = {
        "batch": {"size": 4, "micro_size": 1},
        "optimizer": {"name": "sgd"},
        "steps": 2,
        "eval": {"every_steps": 2},
    }
    plan, spec = planned(settings, ranks.world_size)
    return Trainer(spec, plan, Sharing(ranks, kind), ranks, folder).run().steps_done
