"""Runs of the pool's ranks for the tests of out-of-memory: failing items, parameters of two
formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import torch

from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.runtime.ranks import Ranks
from tests.engine import cases
from tests.engine.cases import Seen
from tests.engine.strategies.strategy_cases import two_formats
from tests.engine.toy import Items, Toy


def fails_to_fetch(ranks: Ranks, toy: Toy, settings: dict[str, Any], folder: Path) -> None:
    """Train with items of the third batch that do not fit into memory on any rank."""
    fetch, train = Items.__getitem__, Trainer._train
    room = None  # The checks before the loop fetch as many items as they have time for.

    def train_with_room_for_two_batches(self: Trainer) -> bool:
        nonlocal room
        room = 2 * 12 // ranks.world_size
        return train(self)

    def short(self: Items, index: int) -> Any:
        nonlocal room
        if room is not None:
            room -= 1
            if room < 0:
                raise torch.OutOfMemoryError("no room for an item")
        return fetch(self, index)

    with (
        mock.patch.object(Trainer, "_train", train_with_room_for_two_batches),
        mock.patch.object(Items, "__getitem__", short),
    ):
        cases.train(ranks, toy, settings, folder)


def of_two_formats(
    ranks: Ranks, toy: Toy, settings: dict[str, Any], folder: Path, mutate: Any
) -> Seen:
    """Run a model with parameters in float64 and one in float32."""
    with two_formats():
        return cases.train(ranks, toy, settings, folder, mutate)
