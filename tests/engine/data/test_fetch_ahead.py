"""A batch that is fetched before it is taken: while a rank waits for the gradients of others."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from lockstep.engine.data import loader as loading
from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.interface import Task
from tests.engine.cases import planned
from tests.engine.data.test_order import Numbers, batches
from tests.harness.ranks import Pool

STEPS, SIZE = 5, 8
OPTIONS = {"batch": {"size": SIZE, "micro_size": 2}, "optimizer": {"name": "sgd"}, "steps": STEPS}


class Failing(Numbers):
    def __getitem__(self, item: int) -> int:
        if self.fetched == 8:
            raise ValueError("torn")
        return super().__getitem__(item)


class Rows(Dataset[Any]):
    """Notes whether an item is fetched inside a backward; one item may be torn."""

    def __init__(self, torn: int | None) -> None:
        self.torn = torn
        self.inside: list[bool] = []

    def __len__(self) -> int:
        return STEPS * SIZE

    def __getitem__(self, item: int) -> Any:
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code.co_name != "_engine_run_backward":
            frame = frame.f_back
        self.inside.append(frame is not None)
        if item == self.torn and frame is not None:
            raise ValueError("torn")
        return torch.full((2,), float(item))


class Line(Task):
    def __init__(self, torn: int | None) -> None:
        self.rows = Rows(torn)

    def model(self) -> nn.Module:
        return nn.Linear(2, 1)

    def dataset(self, split: str) -> Dataset[Any]:
        return self.rows

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        found: torch.Tensor = (model(batch) ** 2).sum()
        return found


def train(ranks: Ranks, folder: Path, torn: int | None) -> tuple[list[bool], int, str]:
    folder.mkdir(parents=True, exist_ok=True)
    plan, spec = planned(OPTIONS, ranks.world_size)
    task = Line(torn)
    trainer = Trainer(spec, plan, task, ranks, folder)
    try:
        trainer.run()
    except Exception as error:  # noqa: BLE001 - compared by the test
        return task.rows.inside, trainer.steps_done, "".join(getattr(error, "__notes__", []))
    return task.rows.inside, trainer.steps_done, ""


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_rank_fetches_while_it_waits_for_others(
    pool: Pool, tmp_path: Path, world_size: int
) -> None:
    waited = (STEPS - 1) * SIZE // world_size if world_size > 1 else 0
    for inside, steps_done, _ in pool.run(train, tmp_path, None, world_size=world_size):
        assert steps_done == STEPS
        assert sum(inside) == waited, "all batches but the first"


def test_an_item_that_fails_meanwhile_is_named(pool: Pool, tmp_path: Path) -> None:
    found = pool.run(train, tmp_path, 17, world_size=2)
    named = [note for _, _, note in found if "item 17 of dataset('train')" in note]
    assert len(named) == 1, found
    assert len({steps_done for _, steps_done, _ in found}) == 1


def test_a_fetched_batch_is_taken_once() -> None:
    usual = batches(Numbers(24), 4, 2, 1, 0, steps=6)
    expected = [usual.take() for _ in range(6)]
    dataset = Numbers(24)
    loader = batches(dataset, 4, 2, 1, 0, steps=6)
    for fetched in range(6):
        loader.fetch()
        loader.fetch()
        assert dataset.fetched == 4 * (fetched + 1)
        assert loader.take() == expected[fetched]
    loader.fetch()
    assert loader.take() is None


def test_the_error_of_a_fetch_is_raised_where_its_batch_is_taken() -> None:
    loader = batches(Failing(24), 4, 2, 1, 0, steps=6)
    for _ in range(2):
        loader.fetch()
        assert loader.take() is not None
    loader.fetch()
    with pytest.raises(ValueError, match="torn"):
        loader.take()


def test_a_replan_discards_a_fetched_batch() -> None:
    loader = batches(Numbers(24), 4, 2, 1, 0, steps=6)
    loader.fetch()
    loader.replan(loader._plan.settled(1), 3)
    taken = loader.take()
    assert taken is not None
    assert (taken.step, len(taken.micro_batches)) == (3, 4)


def test_no_batch_comes_twice_when_a_thread_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_IN_LINE_SECONDS", -1.0)  # Every fetch is a slow one.
    loader = batches(Numbers(56), 4, 2, 1, 0, steps=14, in_line=False)
    for step in range(14):
        loader.fetch()
        loader.request()
        taken = loader.take()
        assert taken is not None
        assert taken.step == step
    assert loader._thread is not None
    loader.close()
