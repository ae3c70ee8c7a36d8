"""Draws of an item are a function of (seed, epoch, item), although items that draw nothing are not
seeded."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from lockstep.engine.data.fetching import Fetcher, micro_batches
from lockstep.engine.data.loader import Batches, RunLength
from lockstep.engine.runtime import randomness
from lockstep.engine.runtime.randomness import ItemSeeds
from lockstep.engine.task.interface import Task
from tests.engine.cases import planned

pytestmark = pytest.mark.contract(25)

DRAWS: dict[str, Callable[[], float]] = {
    "random": random.random,
    "random.gauss": lambda: random.gauss(0, 1),
    "random.shuffle": lambda: float(random.sample(range(1000), 1)[0]),
    "numpy": np.random.rand,
    "numpy normal": np.random.randn,
    "torch": lambda: float(torch.rand(())),
    "torch normal": lambda: float(torch.randn(())),
    "torch permutation": lambda: float(torch.randperm(100)[0]),
}


class Augmented(Dataset[float]):
    """Only some items draw random numbers."""

    def __init__(self, draw: Callable[[], float], drawing: set[int]):
        self.draw, self.drawing = draw, drawing
        self.fetched: Counter[int] = Counter()

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> float:
        self.fetched[index] += 1
        return index + self.draw() if index in self.drawing else float(index)


def expected(draw: Callable[[], float], drawing: set[int], epoch: int = 0) -> list[float]:
    """Return the expected items, each drawn with its own seed."""
    found = []
    for index in range(24):
        randomness.seed_host(randomness.seed_of(randomness.ITEM, 3, epoch, index))
        found.append(index + draw() if index in drawing else float(index))
    return found


def fetched(dataset: Augmented, size: int, workers: int = 0, epoch: int = 0) -> list[float]:
    batches = [
        [(epoch, index) for index in range(start, min(start + size, 24))]
        for start in range(0, 24, size)
    ]
    fetcher: Fetcher[list[float]] = Fetcher(dataset, list, seed=3)
    return [
        value
        for batch in micro_batches(fetcher, batches, workers=workers, ahead=2, pin=False)
        for value in batch
    ]


@pytest.mark.parametrize(("name", "draw"), DRAWS.items(), ids=DRAWS.keys())
@pytest.mark.parametrize("drawing", [{0}, {17}, {5, 6, 23}, set(range(24))], ids=len)
def test_items_draw_the_same_wherever_the_first_draw_is(
    name: str, draw: Callable[[], float], drawing: set[int]
) -> None:
    wanted = expected(draw, drawing)
    for size in (1, 4, 7, 24):
        random.seed(size)  # The previous state of the generators must not matter.
        assert fetched(Augmented(draw, drawing), size) == wanted


@pytest.mark.parametrize("workers", [1, 2])
def test_items_draw_the_same_in_worker_processes(workers: int) -> None:
    for drawing in ({17}, {2, 20}):
        assert fetched(Augmented(np.random.rand, drawing), 3, workers) == expected(
            np.random.rand, drawing
        )


def test_the_epoch_is_part_of_the_seed() -> None:
    one, two = (fetched(Augmented(random.random, {3}), 4, epoch=epoch) for epoch in (0, 1))
    assert one == expected(random.random, {3}, 0)
    assert two == expected(random.random, {3}, 1)
    assert one[3] != two[3]


def test_only_the_micro_batch_of_the_first_draw_is_fetched_again() -> None:
    dataset = Augmented(random.random, {9, 13})
    fetched(dataset, 4)
    assert dataset.fetched == {index: 2 if 8 <= index < 12 else 1 for index in range(24)}


def test_items_that_draw_nothing_are_never_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    seeded: list[int] = []
    monkeypatch.setattr(ItemSeeds, "seed", lambda _, epoch, index: seeded.append(index))
    dataset = Augmented(random.random, set())
    fetched(dataset, 4)
    assert set(dataset.fetched.values()) == {1}
    assert seeded == []


def test_draws_by_other_code_are_not_attributed_to_an_item() -> None:
    seeds = ItemSeeds(3)
    for draw in DRAWS.values():
        draw()
        seeds.fetch(lambda _: None)
    assert not seeds.draws


def test_draws_by_other_code_cost_no_fetch() -> None:
    seeds, fetches = ItemSeeds(3), []
    for _ in range(5):
        random.random()
        seeds.fetch(fetches.append)
    assert fetches == [False] * 5


def test_draws_in_the_collation_are_repeatable() -> None:
    def make(samples: list[float]) -> list[float]:
        return [sample + random.random() for sample in samples]

    found = []
    for noise in (1, 2):
        random.seed(noise)
        fetcher = Fetcher(Augmented(random.random, set()), make, seed=3)
        found.append([fetcher[[(0, 0), (0, 1)]], fetcher[[(0, 2)]]])
    assert found[0] == found[1]


def test_an_item_that_fails_without_its_seed_is_fetched_with_it() -> None:
    def fragile(seeded: bool) -> float:
        drawn = random.random()
        if not seeded:
            raise ValueError(drawn)
        return drawn

    assert 0 <= ItemSeeds(3).fetch(fragile) < 1


def test_an_error_of_an_item_is_raised() -> None:
    def failing(_: bool) -> Any:
        raise KeyError("no such file")

    with pytest.raises(KeyError, match="no such file"):
        ItemSeeds(3).fetch(failing)


class Slow(Augmented):
    """From some moment on, an item draws, and waits in the thread before it draws again."""

    def __init__(self) -> None:
        super().__init__(random.random, set())
        self.drew, self.goes_on = threading.Event(), threading.Event()

    def __getitem__(self, index: int) -> float:
        if not self.drawing:
            return float(index)
        first = self.draw()
        self.drew.set()
        assert self.goes_on.wait(10)
        return index + first + self.draw()


def test_a_replan_waits_for_the_fetch_that_still_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, _ = planned(
        {"batch": {"size": 8, "micro_size": 4}, "optimizer": {"name": "sgd"}, "steps": 40}, 1
    )

    def batches(dataset: Slow) -> Batches:
        return Batches(
            Task(), dataset, plan, RunLength(40, 320), rank=0, dataset_size=24, seed=5, first_step=0, workers=0,
            terms=("loss",), masked=torch.zeros(1), in_line=False, pin=False,
        )  # fmt: skip

    def values(loader: Batches) -> list[float]:
        taken = loader.take()
        assert taken is not None
        return [float(value) for micro_batch in taken.micro_batches for value in micro_batch.batch]

    undisturbed = batches(Slow())
    undisturbed.replan(plan, 9)
    undisturbed._fetcher._dataset.drawing = {0}  # type: ignore[attr-defined] # of Slow
    undisturbed._fetcher._dataset.goes_on.set()  # type: ignore[attr-defined]
    expected = [values(undisturbed) for _ in range(2)]
    dataset = Slow()
    monkeypatch.setattr("lockstep.engine.data.loader._IN_LINE_SECONDS", -1.0)
    loader = batches(dataset)
    for _ in range(10):
        loader.request()
        values(loader)
    assert loader._thread is not None
    dataset.drawing = {0}
    loader.request()
    assert dataset.drew.wait(10)  # The thread is in batch 10.
    threading.Timer(0.1, dataset.goes_on.set).start()
    loader.replan(plan.settled(2), 9)
    assert [values(loader) for _ in range(2)] == expected
    loader.close()


def test_a_generator_is_restored() -> None:
    before = randomness.host_state()
    with randomness.unchanged_generators(torch.device("cpu")):
        for draw in DRAWS.values():
            draw()
        assert randomness.host_state() != before
    assert randomness.host_state() == before


@pytest.mark.parametrize(("name", "draw"), DRAWS.items(), ids=DRAWS.keys())
def test_every_kind_of_draw_changes_the_generator_state(
    name: str, draw: Callable[[], float]
) -> None:
    before = randomness.host_state()
    draw()
    assert randomness.host_state() != before
