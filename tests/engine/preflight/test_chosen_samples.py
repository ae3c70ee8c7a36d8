"""The sample that a check of a cut compares."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from lockstep.engine.data import order
from lockstep.engine.preflight import chosen_samples
from lockstep.engine.preflight.chosen_samples import SCANNED_MAX, first_with_weight, scan
from lockstep.engine.task.interface import Task

SIZE, SEED = 200, 5
ORDER = [index for _, index in order.samples(0, SIZE, size=SIZE, seed=SEED)]


class Numbers(Dataset[Tensor]):
    def __init__(self) -> None:
        self.fetched: list[int] = []

    def __getitem__(self, index: int) -> Tensor:
        self.fetched.append(index)
        return torch.tensor(float(index))


class Weighs(Task):
    """Counts the samples of some numbers."""

    def __init__(self, *counted: int):
        self.counted = counted

    def model(self) -> nn.Module:
        return nn.Linear(1, 1)

    def weight(self, batch: Any) -> float:
        return float(sum(int(each) in self.counted for each in batch))

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen_samples, "SCAN_SECONDS_MAX", 600.0)


@pytest.mark.parametrize("place", [0, 7, SCANNED_MAX - 1])
def test_no_sample_behind_the_first_with_weight_is_fetched(place: int) -> None:
    dataset, task = Numbers(), Weighs(ORDER[place], ORDER[-1])
    found = first_with_weight(task, dataset, size=SIZE, seed=SEED)
    assert (found.index, found.has_weight) == (ORDER[place], True)
    assert dataset.fetched == ORDER[: place + 1]
    assert found == scan(task, dataset, size=SIZE, seed=SEED)[0]


def test_the_first_sample_is_taken_if_none_has_weight() -> None:
    dataset, task = Numbers(), Weighs(ORDER[SCANNED_MAX])
    found = first_with_weight(task, dataset, size=SIZE, seed=SEED)
    assert (found.index, found.has_weight) == (ORDER[0], False)
    assert len(dataset.fetched) == SCANNED_MAX
