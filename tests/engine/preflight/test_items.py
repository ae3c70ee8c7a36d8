"""An item that depends on earlier fetches or on its worker has a warning before step 1."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate, get_worker_info

from lockstep.engine.preflight.items import fetched_again
from tests.engine.preflight.repeatable_cases import (
    CoinToss,
    Items,
    SeededByTheEngine,
    SystemRandomness,
)


class KeptAugmentation(Items):
    def __init__(self) -> None:
        self.kept: dict[int, float] = {}

    def noise(self, index: int) -> float:
        if index not in self.kept:
            self.kept[index] = random.random()
        return self.kept[index]


class KeptDecoding(Items):
    """Correct: its cached value is a function of the index."""

    def __init__(self) -> None:
        self.kept: dict[int, float] = {}

    def noise(self, index: int) -> float:
        return self.kept.setdefault(index, index * 0.5) + random.random()


class OfWorker(Items):
    def noise(self, index: int) -> float:
        worker = get_worker_info()
        return 0.0 if worker is None else float(worker.id)


class SeededByWorker(Items):
    def noise(self, index: int) -> float:
        worker = get_worker_info()
        return float(torch.initial_seed() % 7) if worker is None else worker.seed + 0.5


class MixedWithThePrevious(Items):
    before = 0.0

    def noise(self, index: int) -> float:
        before, self.before = self.before, float(index)
        return before


class ChangedInPlace(Dataset[Any]):
    def __init__(self) -> None:
        self.x = torch.ones(12, 2)

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Tensor:
        return self.x[index].mul_(0.5)


class FetchedTogether(Items):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [(x + len(indices), y) for x, y in (self[index] for index in indices)]


def warnings_of(items: Dataset[Any]) -> list[str]:
    return fetched_again(items, 12, default_collate, seed=3)[1]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (KeptAugmentation, "draws random numbers at its first fetch and not later"),
        (OfWorker, "in another order or as another worker"),
        (SeededByWorker, "in another order or as another worker"),
        (MixedWithThePrevious, "in another order or as another worker"),
        (ChangedInPlace, "differs when it is fetched again"),
        (FetchedTogether, "when __getitems__ fetches several at once"),
        (CoinToss, "its own generator (dataset.rng)"),
        (SystemRandomness, "a separate generator, the clock or the system"),
    ],
)
def test_an_item_that_depends_on_more_than_its_index_has_a_warning(
    items: type[Dataset[Any]], message: str
) -> None:
    (warning,) = warnings_of(items())
    assert message in warning
    assert "so the run depends on micro_size and on the ranks" in warning


@pytest.mark.parametrize("items", [Items, KeptDecoding, SeededByTheEngine])
def test_an_item_that_depends_on_its_index_has_no_warning(items: type[Dataset[Any]]) -> None:
    assert warnings_of(items()) == []
    assert get_worker_info() is None
