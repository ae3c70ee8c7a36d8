"""A model in training that draws a random number in each micro-batch, and notes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.runtime.ranks import Ranks
from tests.engine.cases import planned
from tests.engine.toy import Toy, ToyTask

OPTIONS = {"batch": {"size": 8, "micro_size": 2}, "optimizer": {"name": "sgd", "lr": 0.1}}
STEPS = 3


class Drawing(ToyTask):
    not_state = (*ToyTask.not_state, "drawn")

    def __init__(self) -> None:
        super().__init__(Toy())
        self.drawn: list[float] = []

    def loss(self, model: nn.Module, batch: Any) -> Tensor | dict[str, Tensor]:
        self.drawn.append(float(torch.rand(())))
        return super().loss(model, batch)


def draws(ranks: Ranks, folder: Path) -> list[float]:
    """The draws of this rank in a run on two ranks: two micro-batches in each step."""
    plan, train = planned({**OPTIONS, "steps": STEPS}, ranks.world_size)
    task = Drawing()
    Trainer(train, plan, task, ranks, folder).run()
    return task.drawn[-2 * STEPS :]
