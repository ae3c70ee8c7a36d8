"""What every engine is asked to train.

A few rows, a small model, a loss, and how the run is laid out.

A row is a function of its number, and carries it, so that anybody can work out what a batch's
gradient must be. All is float64: a wrong rule shows as 1e-1, a right one as 1e-16.

Not here: how an engine is asked (``benchmarks.conformance.engines``), what is right
(``benchmarks.conformance.reference``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

POSITIONS, FEATURES, WIDTH = 5, 3, 4
RATES = {"sgd": 0.1, "momentum": 0.05, "adamw": 1e-2}
MOMENTUM, DECAY, BETAS = 0.9, 0.1, (0.9, 0.95)
SEED = 1337


@dataclass(frozen=True)
class Case:
    """One run, in words that every engine understands."""

    world_size: int
    micro_size: int
    """Rows in one forward and backward on one rank."""
    micro_batches: int
    """Micro-batches per rank and update."""
    items: int
    epochs: int = 1
    batch: int | None = None
    """Rows per update over all ranks, where it is not simply world_size × micro_size × slots."""
    weigh: Literal["samples", "tokens"] = "samples"
    """What the loss is a mean over: the rows, or their unmasked positions."""
    masked: Literal["none", "some", "odd", "all"] = "none"
    """``some``: row i has 1 + i mod 5 unmasked positions. ``odd``: odd rows have none. ``all``:
    none has any."""
    optimizer: Literal["sgd", "momentum", "adamw"] = "sgd"
    clip: float | None = None
    warmup: int | None = None
    """Updates over which the rate rises, before it falls along a cosine to the last update; None
    keeps it constant."""
    poisoned: int | None = None
    """A row whose loss is not a number."""
    sparse: bool = False
    """Whether a part of the model is used by row 0 alone."""
    counted: bool = False
    """Whether collectives are counted, by torch's profiler."""
    checkpoint_at: int | None = None
    """Update after which a checkpoint is written."""
    resumed: bool = False
    """Whether to go on from that checkpoint, which an earlier run in the same folder wrote."""

    @property
    def batch_size(self) -> int:
        """Rows per update, over all ranks."""
        return self.batch or self.world_size * self.micro_size * self.micro_batches

    @property
    def updates(self) -> int:
        """Optimizer steps of the whole run.

        Where an epoch is not a multiple of the batch, only for one epoch.
        """
        return math.ceil(self.epochs * self.items / self.batch_size)


def row(case: Case, index: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Its number, features (T, F), targets (T,) and mask (T,)."""
    generator = torch.Generator().manual_seed(1000 + index)
    x = torch.randn(POSITIONS, FEATURES, dtype=torch.float64, generator=generator)
    y = torch.randn(POSITIONS, dtype=torch.float64, generator=generator)
    if index == case.poisoned:
        x = x * math.nan
    counts = {
        "none": POSITIONS,
        "some": 1 + index % POSITIONS,
        "odd": POSITIONS * (1 - index % 2),
        "all": 0,
    }
    mask = (torch.arange(POSITIONS) < counts[case.masked]).to(torch.float64)
    return torch.tensor(index), x, y, mask


class Rows(Dataset[Any]):
    """The map-style dataset of a case."""

    def __init__(self, case: Case):
        self.case = case

    def __len__(self) -> int:
        return self.case.items

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return row(self.case, index)


class Net(nn.Module):
    """Two layers, and for a sparse case a third part that only row 0 goes through."""

    def __init__(self, case: Case):
        super().__init__()
        self.hidden = nn.Linear(FEATURES, WIDTH)
        self.out = nn.Linear(WIDTH, 1)
        if case.sparse:
            self.rare = nn.Linear(FEATURES, 1)
        self.to(torch.float64)

    def forward(self, ids: Tensor, x: Tensor) -> Tensor:
        y: Tensor = self.out(torch.tanh(self.hidden(x))).squeeze(-1)
        if hasattr(self, "rare") and bool((ids == 0).any()):
            y = y + self.rare(x).squeeze(-1) * (ids == 0).unsqueeze(-1)
        return y


def initial(case: Case) -> Net:
    """The model before training: the same for every engine and the reference."""
    torch.manual_seed(7)
    return Net(case)


def weight(case: Case, batch: Any) -> float:
    """What the loss of these rows is a mean over."""
    return float(batch[3].sum()) if case.weigh == "tokens" else float(len(batch[0]))


def total(case: Case, model: nn.Module, batch: Any) -> Tensor:
    """The loss of these rows as a sum."""
    ids, x, y, mask = batch
    errors: Tensor = (model(ids, x) - y) ** 2 * mask
    return errors.sum() if case.weigh == "tokens" else errors.sum() / POSITIONS


def schedule(case: Case, updates: int) -> Any:
    """Rate at each step of a scheduler that is stepped ``updates`` times, relative to the case's."""
    warmup = case.warmup

    def factor(step: int) -> float:
        if warmup is None:
            return 1.0
        if step < warmup:
            return (step + 1) / warmup
        progress = min(1.0, (step - warmup) / max(1, updates - 1 - warmup))
        return (1 + math.cos(math.pi * progress)) / 2

    return factor


def optimizer(case: Case, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of a case, for loops that are given one."""
    rate = RATES[case.optimizer]
    if case.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=rate, betas=BETAS, weight_decay=DECAY)
    return torch.optim.SGD(
        model.parameters(), lr=rate, momentum=MOMENTUM if case.optimizer == "momentum" else 0.0
    )
