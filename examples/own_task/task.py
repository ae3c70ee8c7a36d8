"""A user's own task: learn a wave from noisy points.

A task says three things: the model, the samples, and the *sum* of the loss over a micro-batch.
Everything else (ranks, accumulation, clipping, schedule, checkpoints, metrics) is the engine's.
Files beside this one can be imported.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from lockstep import Task


class NoisyWave(Dataset[tuple[Tensor, Tensor]]):
    """Points (x, sin 3x + noise). Item i is always at the same place; its noise is drawn anew in
    every epoch."""

    def __init__(self, points: int, noise: float):
        self.points, self.noise = points, noise

    def __len__(self) -> int:
        return self.points

    def __getitem__(self, item: int) -> tuple[Tensor, Tensor]:
        x = torch.tensor([4 * item / self.points - 2])
        # The engine seeds torch from (seed, epoch, item) before each item, so this depends on
        # nothing else.
        return x, torch.sin(3 * x) + self.noise * torch.randn(1)


class Wave(Task):
    """A small network that fits the wave; the arguments come from ``task_args``."""

    def __init__(self, points: int = 2_000, noise: float = 0.1, width: int = 32):
        self.points, self.noise, self.width = points, noise, width

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(1, self.width),
            nn.Tanh(),
            nn.Linear(self.width, self.width),
            nn.Tanh(),
            nn.Linear(self.width, 1),
        )

    def dataset(self, split: str) -> NoisyWave:
        return (
            NoisyWave(self.points, self.noise)
            if split == "train"
            else NoisyWave(self.points // 10, 0.0)
        )

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        return ((model(x) - y) ** 2).sum()

    def evaluate(
        self, model: nn.Module, batch: tuple[Tensor, Tensor]
    ) -> dict[str, tuple[Any, float]]:
        x, y = batch
        error = model(x) - y
        return {"loss": ((error**2).sum(), len(x)), "error": (error.abs().sum(), len(x))}
