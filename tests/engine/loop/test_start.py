"""The start of a run: seeds, checks and restored state before the first step."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.interface import Task
from tests.engine import cases
from tests.engine.cases import planned
from tests.engine.spool import events, records
from tests.engine.start_cases import (
    OPTIONS,
    Divided,
    DividedByNumpy,
    Line,
    NoItems,
    Normed,
    Sparse,
    SparseByHand,
    StreamWithLength,
    TimeFirst,
    TooLarge,
    Watched,
    Wider,
    by_hand,
    divided_on,
    normed_on,
    train,
    trained_on,
)
from tests.engine.toy import Toy
from tests.harness.ranks import Pool


def refusal(task: Task, folder: Path, **more: Any) -> str:
    """Return the message of the error that ends a run before its first step."""
    with pytest.raises(EngineError) as caught:
        train(task, folder, **more)
    assert records(folder) == {}
    return str(caught.value)


@pytest.mark.parametrize("divided", [Divided, DividedByNumpy])
def test_a_random_split_leaks_no_item_of_the_eval_split_into_training(
    tmp_path: Path, divided: type[Divided]
) -> None:
    task = divided()
    train(task, tmp_path, eval={"every_steps": 3})
    assert sorted(task.items["train"] + task.items["eval"]) == list(range(12))


def test_a_random_split_depends_on_the_seed_alone(
    tmp_path: Path,
) -> None:
    tasks = [Divided(), Wider(), Divided()]
    for index, (task, seed) in enumerate(zip(tasks, (5, 5, 6), strict=True)):
        train(task, tmp_path / str(index), eval={"every_steps": 3}, seed=seed)
    assert tasks[0].items == tasks[1].items
    assert tasks[0].items != tasks[2].items


def test_a_random_split_is_the_same_on_all_ranks(pool: Pool, tmp_path: Path) -> None:
    alone = Divided()
    train(alone, tmp_path / "alone", eval={"every_steps": 3})
    assert pool.run(divided_on, tmp_path / "two", world_size=2) == [alone.items, alone.items]


@pytest.mark.parametrize("given", [StreamWithLength, NoItems])
def test_a_dataset_without_numbered_items_is_refused_by_name(
    tmp_path: Path, given: type[Any]
) -> None:
    class Streaming(Line):
        def dataset(self, split: str) -> Any:
            return given()

    assert f"dataset('train') returned a {given.__name__}, which has no __getitem__" in refusal(
        Streaming(), tmp_path
    )


def test_a_default_weight_that_does_not_count_samples_asks_for_one(tmp_path: Path) -> None:
    found = refusal(TimeFirst(), tmp_path)
    assert "write weight(self, batch)" in found
    assert "task.py" not in found, "the file belongs to the engine"


@pytest.mark.parametrize("task", [Sparse, SparseByHand])
def test_sparse_gradients_are_refused_by_name(pool: Pool, tmp_path: Path, task: type[Task]) -> None:
    message = r"the gradient of words.weight is sparse.*remove sparse=True"
    assert re.search(message, refusal(task(), tmp_path / "alone"))
    with pytest.raises(EngineError, match=message):
        pool.run(trained_on, task, tmp_path / "two", world_size=2)


def test_a_first_sample_that_does_not_fit_is_refused_with_advice(tmp_path: Path) -> None:
    found = refusal(TooLarge(), tmp_path)
    assert "micro-batches of one sample" in found
    assert "activation_checkpointing: true" in found


def test_batch_norm_over_one_value_per_channel_equals_the_plain_loop(
    tmp_path: Path,
) -> None:
    task = Watched()
    train(task, tmp_path)
    micro_batches = [
        micro_batch for micro_batch in task.micro_batches if len(set(micro_batch)) > 1
    ]  # Without the warm-up's copies of one sample.
    assert Counter(map(len, micro_batches)) == {2: 6}
    expected = by_hand([micro_batches[0:2], micro_batches[2:4], micro_batches[4:6]])
    found = task.built.state_dict()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-7)


def test_batch_norm_over_one_value_per_channel_trains_on_two_ranks(
    pool: Pool, tmp_path: Path
) -> None:
    found = pool.run(normed_on, tmp_path, {"batch": {"size": 9, "micro_size": 3}}, world_size=2)
    assert torch.equal(found[0]["0.weight"], found[1]["0.weight"])


def test_copies_in_an_empty_micro_batch_have_masks_of_their_own(pool: Pool, tmp_path: Path) -> None:
    """Two copies pass through BatchNorm, so lockstep.Dropout must expect two samples."""
    toy = Toy(batch_norm=True, own_dropout=0.5)
    options = OPTIONS | {"batch": {"size": 3, "micro_size": 1}}
    found = pool.run(cases.train, toy, options, tmp_path, world_size=2)
    assert [len(seen.micro_batches) for seen in found] == [6, 6], (
        "the second rank has 3 samples and 3 empty micro-batches"
    )
    assert torch.equal(found[0].weights["out.weight"], found[1].weights["out.weight"])


def test_single_samples_under_such_a_batch_norm_are_refused(
    tmp_path: Path,
) -> None:
    found = refusal(Normed(), tmp_path, batch={"size": 5, "micro_size": 2})
    assert "BatchNorm" in found
    assert "micro-batches of one sample" in found
    last = refusal(
        Normed(), tmp_path / "last", batch={"size": 11, "micro_size": 11}, epochs=1, steps=None
    )
    assert "micro-batches of one sample" in last


def test_the_search_omits_single_samples_under_such_a_batch_norm(
    tmp_path: Path,
) -> None:
    plan, spec = planned(OPTIONS, 1)
    open_plan = plan.model_copy(update={"micro_batch_size": None, "accumulation_steps": None})
    trainer = Trainer(spec, open_plan, Normed(), Ranks(), tmp_path)
    trainer.run()
    assert trainer.plan.micro_batch_size in (2, 4)
    assert events(tmp_path, "warning")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "each step repeats samples, 1.67 times on average"),
        ({"steps": None, "epochs": 1}, "the only step has 12 samples"),
    ],
)
def test_a_batch_that_is_larger_than_the_dataset_is_reported(
    tmp_path: Path, more: dict[str, Any], words: str
) -> None:
    train(Line(), tmp_path, batch={"size": 20, "micro_size": 2}, **more)
    assert [each["message"] for each in events(tmp_path, "warning")] == [
        f"the batch of 20 is larger than the dataset of 12 samples: {words}"
    ]
    train(Line(), tmp_path / "fits", batch={"size": 12, "micro_size": 2})
    assert events(tmp_path / "fits", "warning") == []
