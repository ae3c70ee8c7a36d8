"""Definition of the runs that every engine trains: rows, a small model, a loss and a layout.

A row is a function of its number and carries that number, so the gradient of any batch can be
computed independently. All values are float64: an incorrect rule gives an error of 1e-1, a correct
one 1e-16.

Not here: the adapters (``benchmarks.conformance.engines``), the expected results
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
    """Configuration of one run, independent of the engine."""

    world_size: int
    micro_size: int
    """Rows in one forward and backward on one rank."""
    micro_batches: int
    """Micro-batches per rank and update."""
    items: int
    epochs: int = 1
    batch: int | None = None
    """Rows per update over all ranks, if it is not world_size × micro_size × micro_batches."""
    weigh: Literal["samples", "tokens"] = "samples"
    """Unit that the loss is averaged over: rows, or their unmasked positions."""
    masked: Literal["none", "some", "odd", "all"] = "none"
    """Number of unmasked positions. ``some``: row i has 1 + i mod 5. ``odd``: odd rows have none.
    ``all``: no row has any."""
    optimizer: Literal["sgd", "momentum", "adamw"] = "sgd"
    clip: float | None = None
    warmup: int | None = None
    """Updates over which the rate rises, before it falls along a cosine to the last update. None
    keeps the rate constant."""
    poisoned: int | None = None
    """Number of the row whose loss is NaN."""
    sparse: bool = False
    """True if only row 0 uses a part of the model."""
    counted: bool = False
    """True if collectives are counted, by torch's profiler."""
    checkpoint_at: int | None = None
    """Update after which a checkpoint is written."""
    resumed: bool = False
    """True if the run resumes from that checkpoint, which an earlier run in the same folder
    wrote."""

    @property
    def batch_size(self) -> int:
        """Rows per update, over all ranks."""
        return self.batch or self.world_size * self.micro_size * self.micro_batches

    @property
    def updates(self) -> int:
        """Optimizer steps of the whole run.

        If an epoch is not a multiple of the batch, the value is valid only for one epoch.
        """
        return math.ceil(self.epochs * self.items / self.batch_size)


def row(case: Case, index: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return a row: its number, features (T, F), targets (T,) and mask (T,)."""
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
    """Map-style dataset of a case."""

    def __init__(self, case: Case):
        self.case = case

    def __len__(self) -> int:
        return self.case.items

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return row(self.case, index)


class Net(nn.Module):
    """Two layers, and for a sparse case a third one that only row 0 uses."""

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
    """Return the model before training, the same for every engine and for the reference."""
    torch.manual_seed(7)
    return Net(case)


def weight(case: Case, batch: Any) -> float:
    """Return the number of units, rows or unmasked positions, that the loss is averaged over."""
    return float(batch[3].sum()) if case.weigh == "tokens" else float(len(batch[0]))


def total(case: Case, model: nn.Module, batch: Any) -> Tensor:
    """Return the loss of these rows as a sum."""
    ids, x, y, mask = batch
    errors: Tensor = (model(ids, x) - y) ** 2 * mask
    return errors.sum() if case.weigh == "tokens" else errors.sum() / POSITIONS


def schedule(case: Case, updates: int) -> Any:
    """Return the factor on the case's rate at each step of a scheduler.

    The scheduler is stepped ``updates`` times.
    """
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
    """Return the optimizer of a case, for training loops that take one as an argument."""
    rate = RATES[case.optimizer]
    if case.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=rate, betas=BETAS, weight_decay=DECAY)
    return torch.optim.SGD(
        model.parameters(), lr=rate, momentum=MOMENTUM if case.optimizer == "momentum" else 0.0
    )
