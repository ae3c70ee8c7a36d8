"""Copies of samples: independent, and no larger than what a sample shows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate

from lockstep.engine.model.normalization import masked_batch
from lockstep.engine.preflight import additivity_check
from lockstep.engine.preflight.items import fetched_again
from lockstep.engine.task.copies import independent
from lockstep.engine.task.interface import Task
from tests.engine.cases import OPTIONS, planned


def table() -> Tensor:
    return torch.arange(60_000, dtype=torch.float64).view(600, 100)


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


def shifted(rows: Tensor) -> tuple[Tensor, Tensor]:
    return rows[3, :-1], rows[3, 1:]


SAMPLES: dict[str, Callable[[Tensor], Any]] = {
    "a row": lambda rows: rows[3],
    "a number": lambda rows: rows[3, 5],
    "nothing": lambda rows: rows[3, :0],
    "shifted rows": shifted,
    "a mapping": lambda rows: {"x": rows[3], "y": [rows[4], 7, "text"]},
    "a named tuple": lambda rows: Pair(rows[3], rows[4].int()),
    "every second number": lambda rows: rows[3, 1::2],
    "a transposed part": lambda rows: rows[3:5].T,
    "a repeated number": lambda rows: rows[3, 5].expand(4),
    "another format of the same bytes": lambda rows: (rows[3], rows[3].view(torch.int32)[3:]),
    "with a gradient": lambda rows: rows[3].clone().requires_grad_(),
}


def tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    return [t for part in parts if isinstance(part, Tensor | list) for t in tensors(part)]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_copy_is_that_of_python_without_the_rest_of_a_table(name: str) -> None:
    rows = table()
    sample = SAMPLES[name](rows)
    found, expected = independent(sample), copy.deepcopy(sample)
    assert type(found) is type(expected)
    for one, other in zip(tensors(found), tensors(expected), strict=True):
        assert torch.equal(one, other)
        assert (one.dtype, one.stride()) == (other.dtype, other.stride())
        assert one.requires_grad == other.requires_grad
        assert one.untyped_storage().nbytes() <= 2 * 100 * 8
    rows.zero_()
    for one, other in zip(tensors(found), tensors(expected), strict=True):
        assert torch.equal(one, other), "it must not change with the table"


def test_tensors_that_share_memory_share_it_in_the_copy() -> None:
    inputs, targets = independent(shifted(table()))
    inputs[1] = -1.0
    assert float(targets[0]) == -1.0
    same = table()[3]
    one, other = independent([same, same])
    assert one is other


def test_a_list_that_holds_itself_is_copied() -> None:
    value: list[Any] = [table()[3]]
    value.append(value)
    found = independent(value)
    assert found[1] is found
    assert found[0].untyped_storage().nbytes() == 100 * 8


class Rows(Dataset[Tensor]):
    def __init__(self) -> None:
        self.rows = table()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Tensor:
        return self.rows[index]


class Sizes(Task):
    """Records the bytes behind each sample that it collates."""

    not_state = ("held",)

    def __init__(self) -> None:
        self.held: list[int] = []

    def model(self) -> nn.Module:
        return nn.Linear(100, 1, dtype=torch.float64)

    def collate(self, samples: list[Any]) -> Tensor:
        self.held += [sample.untyped_storage().nbytes() for sample in samples]
        found: Tensor = default_collate(samples)
        return found

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        found: Tensor = model(batch / 60_000).sum()
        return found


def test_no_check_copies_the_table_of_a_sample() -> None:
    task = Sizes()
    model, train = task.model(), planned(OPTIONS, 1)[1]
    fetched_again(Rows(), 600, task.collate, seed=0)
    additivity_check.check(task, model, Rows(), size=600, train=train)
    masked_batch(task, model, Rows()[0])
    assert set(task.held) == {100 * 8}
