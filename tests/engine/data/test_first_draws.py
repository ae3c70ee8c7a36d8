"""The first draw of an item or of the model, while a thread fetches the next batch.

It is later than the samples that the checks compute.
"""

from __future__ import annotations

import math
import random
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from lockstep.engine.data import loader
from lockstep.engine.runtime.ranks import Ranks
from tests.engine.spool import events
from tests.engine.start_cases import Line, train
from tests.harness.ranks import Pool

pytestmark = pytest.mark.contract(25)

STEPS, SIZE = 12, 8
NEVER = STEPS
DRAWS = (random.random, torch.rand(1).uniform_)


class Drawing(Dataset[Any], Line):
    """Items and losses that draw from some step on; in a step of both, the draws alternate."""

    def __init__(self, items_from: int, loss_from: int):
        self.items_from, self.loss_from = items_from, loss_from
        self.item_drew, self.loss_drew = threading.Event(), threading.Event()
        self.fetched: list[int] = []
        """Items that the thread has fetched."""

    def dataset(self, split: str) -> Any:
        return self

    def __len__(self) -> int:
        return STEPS * SIZE

    def __getitem__(self, item: int) -> Any:
        in_thread = threading.current_thread().name == "loader"
        self.fetched += [item] * in_thread
        drawn = 0.0
        if item >= SIZE * self.items_from:
            drawn = random.random()
            self.item_drew.set()
            if in_thread and self.loss_from < NEVER:
                self.loss_drew.wait(5)
            drawn += float(torch.rand(()))
        return torch.tensor([item / 64, drawn]), torch.tensor(item)

    def loss(self, model: nn.Module, batch: Any) -> Any:
        x, y = batch
        late = y >= SIZE * self.loss_from
        noise = torch.zeros(len(y))
        if late.any():
            if self.items_from < NEVER and self.fetched:
                self.item_drew.wait(5)
            noise = torch.rand(len(y)) + random.random()
            self.loss_drew.set()
        return ((model(x).squeeze(-1) - noise * late) ** 2).sum()


def trained(
    ranks: Ranks, folder: Path, first: tuple[int, int], threaded: bool
) -> tuple[Any, list[int], list[str]]:
    """Return the weights, what the thread fetched, and the warnings, of a run in order."""
    folder = folder / str(threaded)
    folder.mkdir(parents=True, exist_ok=True)
    task = Drawing(*first)
    with (
        mock.patch.object(loader, "_IN_LINE_SECONDS", -1.0 if threaded else math.inf),
        mock.patch.object(loader, "_IN_LINE_TRIES", 1),
        mock.patch("lockstep.engine.data.order.samples", in_order),
    ):
        trainer = train(task, folder, ranks, batch={"size": SIZE, "micro_size": 2}, steps=STEPS)
    weights = trainer._parts.model.module.state_dict()
    warnings = [event["message"] for event in events(folder, "warning")] if ranks.first else []
    return weights, task.fetched, warnings


def in_order(start: int, stop: int, **_: Any) -> list[tuple[int, int]]:
    return [(0, item) for item in range(start, stop)]


@pytest.mark.parametrize(
    ("items_from", "loss_from", "world_size"),
    [(NEVER, NEVER, 1), (NEVER, 9, 2), (10, 9, 1), (10, 9, 2), (0, 9, 1), (10, NEVER, 2)],
)
def test_a_run_with_a_thread_draws_what_one_without_does(
    pool: Pool, tmp_path: Path, items_from: int, loss_from: int, world_size: int
) -> None:
    inline, threaded = (
        pool.run(trained, tmp_path, (items_from, loss_from), each, world_size=world_size)
        for each in (False, True)
    )
    for (weights, none, _), (others, fetched, _) in zip(inline, threaded, strict=True):
        assert not none
        assert bool(fetched) == (items_from > 0)
        assert all(torch.equal(weights[name], others[name]) for name in weights)
    for (_, _, warnings), unclear in ((inline[0], False), (threaded[0], 0 < items_from < NEVER)):
        warns = any("the model draws random numbers" in each for each in warnings)
        assert warns == (loss_from < NEVER and not unclear)
