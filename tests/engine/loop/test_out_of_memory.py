"""A step that does not fit is repeated by all ranks in micro-batches of half the size."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.engine.data import order
from lockstep.engine.runtime.errors import EngineError
from tests.engine import cases
from tests.engine.cases import Seen
from tests.engine.loop import out_of_memory_cases
from tests.engine.reference import distance, reference
from tests.engine.shortage import PLACES, shortage
from tests.engine.spool import events, records
from tests.engine.toy import Toy
from tests.harness.ranks import Pool

pytestmark = pytest.mark.contract(36)

OPTIONS: dict[str, Any] = {
    "batch": {"size": 24, "micro_size": 6},
    "steps": 4,
    "optimizer": cases.ADAMW,
    "strategy": {"bucket_cap_mb": 1e-3},
}
# Wide enough for several buckets: some are in flight already, and others are not.
TOY = Toy(items=60, width=200)


def undisturbed(
    pool: Pool, folder: Path, world_size: int, micro_size: int, toy: Toy = TOY
) -> list[Seen]:
    options = OPTIONS | {"batch": {"size": 24, "micro_size": micro_size}}
    return pool.run(cases.train, toy, options, folder, world_size=world_size)


@pytest.mark.parametrize(
    ("place", "world_size", "rank", "only_last", "after"),
    [
        ("mid_backward", 1, 0, False, 0),
        ("forward", 2, 1, True, 0),
        ("mid_backward", 2, 0, False, 5),
        ("backward", 2, 1, True, 3),
        ("mid_backward", 3, None, True, 2),
        ("backward", 3, 2, False, 2),
        ("forward", 4, 1, False, 2),
    ],
)
def test_the_run_ends_as_if_nothing_had_happened(
    pool: Pool,
    tmp_path: Path,
    place: str,
    world_size: int,
    rank: int | None,
    only_last: bool,
    after: int,
) -> None:
    short = partial(shortage, place, rank=rank, samples=2, after=after, only_last=only_last)
    disturbed = pool.run(
        cases.train, TOY, OPTIONS, tmp_path / "short", short, world_size=world_size
    )
    plain = undisturbed(pool, tmp_path / "plain", world_size, 6)
    assert [plan["micro_batch_size"] for plan in events(tmp_path / "short", "plan")][-1] <= 3
    for one, other in zip(disturbed, plain, strict=True):
        assert len(one.gradients) == 4
        for found, wanted in zip(one.gradients, other.gradients, strict=True):
            assert distance(found, wanted) <= 1e-12
        assert distance(one.weights, other.weights) <= 1e-12
        assert one.rates == other.rates
        assert one.left_over == []
    assert sorted(records(tmp_path / "short")) == [1, 2, 3, 4]


def test_the_run_equals_one_started_at_the_smaller_size(pool: Pool, tmp_path: Path) -> None:
    toy = Toy(items=60, width=200, double=False, noise=True, dropout=0.2, buffer=True)
    short = partial(shortage, "mid_backward", rank=1, samples=3)
    disturbed = pool.run(cases.train, toy, OPTIONS, tmp_path / "short", short, world_size=3)
    plain = undisturbed(
        pool, tmp_path / "plain", 3, 2, toy
    )  # Shards of 8 in micro-batches of 4, halved.
    for name, value in plain[0].weights.items():
        assert torch.equal(value, disturbed[0].weights[name]), name
    for step, values in records(tmp_path / "plain").items():
        assert records(tmp_path / "short")[step]["train/loss"] == values["train/loss"]


def test_the_batch_is_that_of_the_reference_for_any_size(pool: Pool, tmp_path: Path) -> None:
    short = partial(shortage, "backward", rank=0, samples=1, after=3)
    seen = pool.run(
        cases.train, TOY, OPTIONS | {"clip_grad_norm": None}, tmp_path, short, world_size=2
    )
    # At one sample per micro-batch, the ids of the last step are those of the last 12 micro-batches
    # of each rank.
    last = [
        index for one in seen for micro_batch in one.micro_batches[-12:] for index in micro_batch
    ]
    assert len(set(last)) == 24
    batches = [
        [i for _, i in order.samples(step * 24, step * 24 + 24, size=60, seed=1337)]
        for step in range(4)
    ]
    assert set(batches[-1]) == set(last)
    expected = reference(TOY, OPTIONS | {"clip_grad_norm": None}, batches)
    assert distance(seen[0].weights, expected.weights) <= 1e-12


def test_the_plan_is_announced_again_with_a_warning(pool: Pool, tmp_path: Path) -> None:
    pool.run(
        cases.train,
        TOY,
        OPTIONS,
        tmp_path,
        partial(shortage, "forward", rank=1, samples=3, after=4),
        world_size=2,
    )
    plans = events(tmp_path, "plan")
    assert [
        (plan["batch_size"], plan["micro_batch_size"], plan["accumulation_steps"]) for plan in plans
    ] == [
        (24, 6, 2),
        (24, 3, 4),
    ]
    (warning,) = events(tmp_path, "warning")
    assert warning["message"] == (
        "step 3 ran out of memory: continuing with micro-batches of 3 instead of 6; the batch stays 24"
    )


@pytest.mark.parametrize("world_size", [1, 3])
def test_one_sample_that_does_not_fit_ends_all_ranks_with_advice(
    pool: Pool, tmp_path: Path, world_size: int
) -> None:
    short = partial(shortage, "forward", rank=0, samples=0)
    with pytest.raises(
        EngineError, match="step 1 does not fit into memory with micro-batches of one sample"
    ) as caught:
        pool.run(cases.train, TOY, OPTIONS, tmp_path, short, world_size=world_size)
    assert caught.value.reason == "out_of_memory"


def test_a_checkpoint_after_it_resumes_bitwise(pool: Pool, tmp_path: Path) -> None:
    options = OPTIONS | {"steps": 8, "checkpoint": {"every_steps": 4, "keep_last": 5}}
    short = partial(shortage, "mid_backward", rank=1, samples=3, after=4)
    whole = pool.run(cases.train, TOY, options, tmp_path / "whole", short, world_size=2)
    shutil.copytree(tmp_path / "whole/checkpoints/step-00000004", tmp_path / "again/resume")
    smaller = options | {"batch": {"size": 24, "micro_size": 3}}
    again = pool.run(cases.train, TOY, smaller, tmp_path / "again", world_size=2)
    assert events(tmp_path / "again", "resumed")[0]["exact"] is True
    for name, value in whole[0].weights.items():
        assert torch.equal(value, again[0].weights[name]), name


@pytest.mark.parametrize("place", PLACES)
def test_a_shortage_with_gradients_of_two_formats_is_reported(
    pool: Pool, tmp_path: Path, place: str
) -> None:
    short = partial(shortage, place, rank=1, samples=3, after=3, only_last=True)
    disturbed = pool.run(
        out_of_memory_cases.of_two_formats, TOY, OPTIONS, tmp_path / "short", short, world_size=2
    )
    plain = pool.run(
        out_of_memory_cases.of_two_formats, TOY, OPTIONS, tmp_path / "plain", None, world_size=2
    )
    assert [plan["micro_batch_size"] for plan in events(tmp_path / "short", "plan")] == [6, 3]
    for one, other in zip(disturbed, plain, strict=True):
        assert distance(one.weights, other.weights) <= 1e-6


def test_memory_of_an_item_is_not_counted_as_a_micro_batch(pool: Pool, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "batch": {"size": 12, "micro_size": 2},
        "optimizer": {"name": "sgd"},
        "steps": 4,
    }
    with pytest.raises(torch.OutOfMemoryError, match="no room for an item"):
        pool.run(out_of_memory_cases.fails_to_fetch, Toy(), options, tmp_path, world_size=2)
    assert len(events(tmp_path, "plan")) == 1
