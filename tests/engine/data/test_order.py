"""Order of items: each once per epoch, and the same ones in a step for every number of ranks."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Dataset

from lockstep.domain.spec.batch import accumulation_steps
from lockstep.domain.training.plan import BatchPlan
from lockstep.engine.data.loader import Batches, RunLength
from lockstep.engine.preflight.worker_items import ROUNDS
from lockstep.engine.task.interface import Task
from tests.effort import effort_of
from tests.engine import cases
from tests.engine.reference import batches_of
from tests.engine.toy import Toy
from tests.harness.ranks import Pool


class Numbers(Dataset[int]):
    def __init__(self, size: int):
        self.size, self.fetched = size, 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, item: int) -> int:
        self.fetched += 1
        return item


class Identity(Task):
    def collate(self, samples: list[int]) -> list[int]:
        return samples

    def weight(self, batch: list[int]) -> float:
        return float(len(batch))


def batches(
    dataset: Numbers, size: int, micro: int, world_size: int, rank: int, **more: Any
) -> Batches:
    plan = BatchPlan(
        batch_size=size,
        micro_batch_size=micro,
        accumulation_steps=accumulation_steps(size, micro, world_size),
        world_size=world_size,
    )
    length = RunLength.of(
        steps=more.pop("steps", None),
        epochs=more.pop("epochs", None),
        dataset_size=dataset.size,
        batch_size=size,
    )
    options = {"first_step": 0, "workers": 0, "seed": 3, "in_line": True, "pin": False, **more}
    return Batches(
        Identity(),
        dataset,
        plan,
        length,
        rank=rank,
        dataset_size=dataset.size,
        terms=("loss",),
        masked=[],
        **options,
    )


def items(loader: Batches) -> list[list[int]]:
    """Return the ids by batch."""
    found = []
    while (batch := loader.take()) is not None:
        found.append(
            [
                item
                for micro_batch in batch.micro_batches
                if micro_batch.samples
                for item in micro_batch.batch
            ]
        )
    loader.close()
    return found


@pytest.mark.contract(7)
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_every_item_comes_once_per_epoch_for_every_size(world_size: int) -> None:
    for size in range(1, 51):
        batch, micro = 1 + size % 7, 1 + size % 3
        shards = [
            items(batches(Numbers(size), batch, micro, world_size, rank, epochs=2))
            for rank in range(world_size)
        ]
        seen = Counter(item for shard in shards for ids in shard for item in ids)
        assert seen == dict.fromkeys(range(size), 2), (size, batch, micro)


@pytest.mark.contract(7)
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_threads_and_worker_processes_keep_the_order_of_items(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "lockstep.engine.data.loader._IN_LINE_SECONDS", 0.0
    )  # Any fetch is long enough for a thread.
    expected = items(batches(Numbers(23), 7, 2, 2, 1, epochs=3))
    assert (
        items(batches(Numbers(23), 7, 2, 2, 1, epochs=3, workers=workers, in_line=False))
        == expected
    )


@pytest.mark.contract(7)
def test_a_thread_that_starts_in_the_middle_fetches_the_next_batches_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lockstep.engine.data.loader._IN_LINE_SECONDS", 0.0)
    monkeypatch.setattr("lockstep.engine.data.loader._IN_LINE_TRIES", 3)
    expected = items(batches(Numbers(23), 7, 2, 2, 1, epochs=3))
    dataset = Numbers(23)
    loader = batches(dataset, 7, 2, 2, 1, epochs=3, in_line=False)
    found = []
    for step in range(len(expected)):
        loader.request()
        batch = loader.take()
        assert batch is not None
        assert batch.step == step
        found.append([item for part in batch.micro_batches if part.samples for item in part.batch])
    assert found == expected
    assert loader.take() is None
    assert dataset.fetched == sum(map(len, expected))
    loader.close()


@pytest.mark.contract(7)
def test_a_new_plan_discards_the_fetched_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.engine.data.loader._IN_LINE_SECONDS", 0.0)
    monkeypatch.setattr("lockstep.engine.data.loader._IN_LINE_TRIES", 1)
    loader = batches(Numbers(24), 8, 4, 1, 0, epochs=1, in_line=False)
    whole = items(batches(Numbers(24), 8, 4, 1, 0, epochs=1))
    loader.take()
    loader.request()
    halved = loader._plan.halved()
    assert halved is not None
    loader.replan(halved, 0)
    assert items(loader) == whole


@pytest.mark.contract(7)
@pytest.mark.parametrize("workers", [0, 2])
def test_every_item_is_fetched_and_trained_on_once(
    pool: Pool, tmp_path: Path, workers: int
) -> None:
    log = tmp_path / "fetched"
    toy = Toy(items=37, weigh="samples", log_items=str(log))
    options = {
        "batch": {"size": 8, "micro_size": 3},
        "optimizer": {"name": "sgd"},
        "epochs": 1,
        "loader": {"workers": workers},
    }
    seen = pool.run(cases.train, toy, options, tmp_path / "run", world_size=3)
    fetched = Counter(map(int, log.read_text().split()))
    checked = Counter(list(range(37)) * 3)
    thrice = Counter(dict.fromkeys({0, 18, 36, *(number * 37 // 8 for number in range(8))}, 9))
    in_workers = Counter({index: ROUNDS for index in thrice if workers})
    assert fetched - checked - thrice - in_workers == Counter(range(37)) + Counter({0: 3}), (
        "each item once; on each rank, item 0 for the masked sample, all for the check of the "
        "loss, and three times the eighths and the "
        "last, for the fingerprint and to see whether they are the same again; and on one rank "
        "these once more in workers"
    )
    run = batches_of([one.micro_batches for one in seen], [8, 8, 8, 8, 5], 3)
    assert Counter(item for batch in run for item in batch) == Counter(range(37))


@pytest.mark.contract(7)
def test_a_run_over_many_items_starts_at_once_at_any_step() -> None:
    dataset = Numbers(10**8)
    loader = None

    def last_batch() -> object:
        nonlocal loader
        loader = batches(dataset, 64, 8, 2, 1, steps=10**6, first_step=10**6 - 1)
        return loader.take()

    start = effort_of(last_batch)
    assert start.result is not None
    assert dataset.fetched == 32, "no item of an earlier step is fetched"
    assert start.lines < 10_000, "no step before it is visited"
    assert start.peak_bytes < 2_000_000, "no table of the items or of the steps"
    assert loader is not None
    loader.close()


@pytest.mark.contract(8)
def test_the_items_of_a_step_are_the_same_for_every_layout() -> None:
    # 13 items in batches of 5: batches cross the ends of epochs.
    expected = [sorted(ids) for ids in items(batches(Numbers(13), 5, 5, 1, 0, steps=9))]
    for world_size in (1, 2, 3, 4):
        for micro in (1, 2, 3, 5):
            shards = [
                items(batches(Numbers(13), 5, micro, world_size, rank, steps=9))
                for rank in range(world_size)
            ]
            assert [
                sorted(chain.from_iterable(step)) for step in zip(*shards, strict=True)
            ] == expected


@pytest.mark.contract(8)
def test_the_order_is_a_function_of_the_seed_and_the_epoch() -> None:
    def order(seed: int) -> list[int]:
        return list(
            chain.from_iterable(items(batches(Numbers(30), 10, 10, 1, 0, epochs=2, seed=seed)))
        )

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert order(1)[:30] != order(1)[30:]
    assert sorted(order(1)[:30]) == sorted(order(1)[30:]) == list(range(30))


@pytest.mark.contract(8)
def test_draws_of_an_item_depend_on_seed_epoch_and_item_alone(pool: Pool, tmp_path: Path) -> None:
    toy = Toy(items=11, noise=True, weigh="samples")
    base = {
        "batch": {"size": 6, "micro_size": 6},
        "optimizer": {"name": "sgd"},
        "steps": 4,
        "clip_grad_norm": None,
    }

    def gradients(name: str, world_size: int, micro: int, workers: int = 0) -> list[Any]:
        options = base | {"batch": {"size": 6, "micro_size": micro}, "loader": {"workers": workers}}
        return pool.run(cases.train, toy, options, tmp_path / name, world_size=world_size)[
            0
        ].gradients

    from tests.engine.reference import distance

    expected = gradients("one", 1, 6)
    for name, world_size, micro, workers in (("a", 1, 2, 0), ("b", 3, 1, 0), ("c", 2, 3, 2)):
        for found, wanted in zip(
            gradients(name, world_size, micro, workers), expected, strict=True
        ):
            assert distance(found, wanted) <= 1e-12
