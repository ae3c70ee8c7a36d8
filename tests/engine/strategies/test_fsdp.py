"""Properties of fsdp beyond those of every strategy: repeated blocks, shards, and collectives in
forward."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lockstep.engine.loop.evaluation import _Share
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.strategies.shards import blocks
from tests.engine import cases, mutants
from tests.engine.reference import distance, objective
from tests.engine.spool import events, records
from tests.engine.step.test_gradient import (
    OPTIMIZERS,
    check_gradients,
    check_weights,
    run,
    spec,
)
from tests.engine.strategies import fsdp_cases
from tests.engine.toy import Net, Toy, initial
from tests.harness.ranks import Pool

SHARDED = {"strategy": {"name": "fsdp"}}
DEEP = Toy(blocks=3, width=5)


@pytest.mark.contract(1, 2, 6)
@pytest.mark.parametrize(
    ("world_size", "size", "micro", "toy"),
    [
        (2, 9, 2, DEEP),
        (3, 10, 2, Toy(blocks=3, width=5, weigh="terms", penalty=0.3)),
        (4, 5, 1, Toy(blocks=2, masked="odd")),
        (2, 8, 2, Toy(blocks=2, width=64, double=False)),
    ],
    ids=["plain", "terms", "empty", "float32"],
)
def test_blocks_gathered_one_at_a_time_have_the_batch_gradient(
    pool: Pool, tmp_path: Path, world_size: int, size: int, micro: int, toy: Toy
) -> None:
    options = spec(size, micro, steps=4, **SHARDED) | {
        "optimizer": OPTIMIZERS["adamw"],
        "clip_grad_norm": 0.5,
    }
    seen, expected = run(pool, tmp_path, toy, options, world_size)
    tolerance = 1e-12 if toy.double else 1e-5
    check_gradients(seen, expected, tolerance)
    check_weights(seen, expected, tolerance)
    assert all(one.left_over == [] for one in seen)


HYBRID = {"strategy": {"name": "fsdp", "shard": 2}}
TERMS = Toy(blocks=2, weigh="terms", penalty=0.3)
OFTEN = {"reduce": "each_micro_batch"}


def hybrid_run(
    pool: Pool, folder: Path, mutate: Any = None, toy: Toy = DEEP, **more: Any
) -> tuple[Any, Any]:
    options = spec(9, 1, steps=3) | {
        "strategy": {"name": "fsdp", **more},
        "optimizer": OPTIMIZERS["adamw"],
        "clip_grad_norm": 0.5,
    }
    return run(pool, folder, toy, options, 4, mutate)


@pytest.mark.contract(1, 2, 16)
@pytest.mark.parametrize("more", [{"shard": 2}, OFTEN | {"shard": 2}], ids=str)
@pytest.mark.parametrize("toy", [DEEP, TERMS], ids=["", "terms"])
def test_copies_and_frequent_reductions_have_the_batch_gradient(
    pool: Pool, tmp_path: Path, toy: Toy, more: dict[str, Any]
) -> None:
    seen, expected = hybrid_run(pool, tmp_path, toy=toy, **more)
    check_gradients(seen, expected, 1e-12)
    check_weights(seen, expected, 1e-12)
    for one in seen[1:]:
        assert all(torch.equal(one.weights[name], seen[0].weights[name]) for name in one.weights)


@pytest.mark.contract(16)
def test_a_norm_that_counts_each_copy_fails_this_check(pool: Pool, tmp_path: Path) -> None:
    seen, expected = hybrid_run(pool, tmp_path, mutants.norm_of_all_copies, shard=2)
    with pytest.raises(AssertionError):
        check_weights(seen, expected, 1e-12)


def test_an_incomplete_copy_is_refused_at_the_start(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="needs a multiple of 2 ranks, and the run has 3") as seen:
        pool.run(cases.train, DEEP, RESUMED | HYBRID, tmp_path, world_size=3)
    assert seen.value.reason == "bad_spec"


def collectives(
    pool: Pool, folder: Path, micro: int, mutate: Any = None, ranks: int = 2, **more: Any
) -> dict[str, int]:
    """Return the collectives of a run of two steps, by kind."""
    options = spec(4 * ranks, micro, steps=2) | {"strategy": {"name": "fsdp", **more}}
    folder = folder / f"{micro}{ranks}{more}"
    seen = pool.run(cases.train, DEEP, options, folder, mutate, True, world_size=ranks)
    return seen[0].collectives


@pytest.mark.contract(9)
def test_gradients_are_reduced_once_and_parameters_gathered_per_micro_batch(
    pool: Pool, tmp_path: Path
) -> None:
    one, four = collectives(pool, tmp_path, 4), collectives(pool, tmp_path, 1)
    assert one["gloo:all_reduce"] == four["gloo:all_reduce"]
    # Three micro-batches more in each of two steps: three blocks in forward and again in backward,
    # and the rest once.
    assert four["gloo:all_gather"] - one["gloo:all_gather"] == 2 * 3 * (3 + 3 + 1)
    # The check would find a reduction of the three blocks and the rest in each of these
    # micro-batches.
    always = collectives(pool, tmp_path / "always", 1, mutants.reduced_in_every_micro_batch)
    assert always["gloo:all_reduce"] - four["gloo:all_reduce"] == 2 * 3 * 4
    often = collectives(pool, tmp_path, 1, **OFTEN)
    assert often["gloo:all_reduce"] == always["gloo:all_reduce"]


@pytest.mark.contract(9)
def test_copies_exchange_gradients_once_per_step(pool: Pool, tmp_path: Path) -> None:
    seldom = collectives(pool, tmp_path, 1, ranks=4, shard=2)
    often = collectives(pool, tmp_path, 1, ranks=4, shard=2, **OFTEN)
    # Of the three blocks and the rest, within a copy alone.
    assert often["gloo:all_reduce"] - seldom["gloo:all_reduce"] == 2 * 3 * 4


def test_each_rank_holds_its_shard_of_parameters_gradients_and_moments(pool: Pool) -> None:
    found = pool.run(fsdp_cases.sizes, None, world_size=4)
    whole = found[0][1]
    assert sum(kept for kept, _ in found) == 4 * whole
    assert max(kept for kept, _ in found) < 4 * whole * 0.27  # A quarter, and a remainder.
    hybrid = pool.run(fsdp_cases.sizes, 2, world_size=4)
    assert sum(kept for kept, _ in hybrid) == 2 * 4 * whole, "two copies"
    assert max(kept for kept, _ in hybrid) < 4 * whole * 0.52


@pytest.mark.contract(11)
@pytest.mark.parametrize(
    ("more", "rank", "last"),
    [
        # Every pair of these three occurs.
        ({}, None, True),
        ({}, 1, False),
        (OFTEN, None, False),
        (OFTEN, 1, True),
        (OFTEN | {"shard": 2}, None, True),
        (OFTEN | {"shard": 2}, 1, False),
    ],
    ids=str,
)
def test_a_parameter_unused_in_a_micro_batch_is_reduced(
    pool: Pool, tmp_path: Path, rank: int | None, last: bool, more: dict[str, Any]
) -> None:
    # Six samples and three micro-batches per rank. The same is left out under manual, which counts
    # it as zero by construction.
    lacking = partial(fsdp_cases.left_out, "scale", rank=rank, last=last)
    ranks = 2 * more.get("shard", 1)
    options = spec(6 * ranks, 2, steps=2) | {"optimizer": OPTIMIZERS["adamw"]}
    found, plain = (
        pool.run(
            cases.train,
            Toy(),
            options | {"strategy": section},
            tmp_path / section["name"],
            lacking,
            world_size=ranks,
        )
        for section in ({"name": "fsdp", **more}, {"name": "manual"})
    )
    for one, other in zip(found, plain, strict=True):
        for here, there in zip(one.gradients, other.gradients, strict=True):
            assert distance(here, there) <= 1e-12
        assert distance(one.weights, other.weights) <= 1e-12


RESUMED: dict[str, Any] = {
    "batch": {"size": 14, "micro_size": 2},
    "optimizer": OPTIMIZERS["adamw"],
    "clip_grad_norm": 0.5,
    "steps": 4,
    "checkpoint": {"every_steps": 1, "keep_last": 9},
    "eval": {"every_steps": 3},
}


@pytest.mark.contract(27)
def test_a_run_resumes_on_other_ranks_and_strategies(pool: Pool, tmp_path: Path) -> None:
    toy = Toy(items=33, blocks=3, width=5)
    whole = pool.run(cases.train, toy, RESUMED, tmp_path / "whole", world_size=2)
    source = tmp_path / "whole"
    for world_size, step, name in (
        (2, 1, "fsdp"),
        (3, 2, "fsdp"),
        (2, 3, "zero1"),
        (1, 3, "fsdp"),
        (4, 3, "fsdp"),
    ):
        folder = tmp_path / f"{world_size}-{name}"
        shutil.copytree(source / f"checkpoints/step-{step:08d}", folder / "resume")
        options = RESUMED | {"strategy": {"name": name}}
        again = pool.run(cases.train, toy, options, folder, world_size=world_size)
        assert [event["step"] for event in events(folder, "resumed")] == [step]
        assert all(distance(one.weights, whole[0].weights) <= 1e-12 for one in again)
        if step < 3:
            source = folder


@pytest.mark.contract(26, 27)
def test_copies_resume_on_any_layout_and_exactly_on_their_own(pool: Pool, tmp_path: Path) -> None:
    toy = Toy(items=33, blocks=3, width=5)
    ends = {}
    for name, section, world_size, source, step in (
        ("two", SHARDED, 2, "", 0),
        ("four", HYBRID, 4, "two", 1),
        ("again", HYBRID, 4, "four", 3),
        ("one", SHARDED, 1, "four", 2),
    ):
        if source:
            saved = tmp_path / source / f"checkpoints/step-{step:08d}"
            shutil.copytree(saved, tmp_path / name / "resume")
        ends[name] = pool.run(
            cases.train, toy, RESUMED | section, tmp_path / name, world_size=world_size
        )
        assert all(distance(one.weights, ends["two"][0].weights) <= 1e-12 for one in ends[name])
    assert [event["exact"] for event in events(tmp_path / "again", "resumed")] == [True]
    for one, other in zip(ends["four"], ends["again"], strict=True):
        assert all(torch.equal(one.weights[key], value) for key, value in other.weights.items())


def test_an_evaluation_with_equal_forwards_counts_every_item_once(
    pool: Pool, tmp_path: Path
) -> None:
    # Shards of 3, 2 and 2 items in micro-batches of 2: two on rank 0, one on the others, which run
    # one more.
    toy = Toy(items=7, blocks=2)
    options = spec(6, 2, steps=4, eval={"every_steps": 2}, **SHARDED)
    seen = pool.run(cases.train, toy, options, tmp_path, world_size=3)
    model = initial(toy)
    model.load_state_dict(seen[0].weights)
    wanted = objective(toy, model, list(range(7)))
    assert wanted is not None
    assert records(tmp_path)[4]["eval/loss"] == pytest.approx(wanted.item(), rel=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 13])
@pytest.mark.parametrize("micro", [1, 2, 5])
def test_shards_of_an_evaluation_are_padded_without_counting(size: int, micro: int) -> None:
    shards = [
        _Share(size, Ranks(rank=rank, world_size=4), micro, equally=True) for rank in range(4)
    ]
    batches = [list(shard) for shard in shards]
    assert len({len(each) for each in batches}) == 1
    counted = [
        item
        for shard, each in zip(shards, batches, strict=True)
        for batch in each[: shard.counted]
        for item in batch
    ]
    assert sorted(counted) == [(0, item) for item in range(size)]
    plain = [
        list(_Share(size, Ranks(rank=rank, world_size=4), micro, equally=False))
        for rank in range(4)
    ]
    assert [each[: shard.counted] for shard, each in zip(shards, batches, strict=True)] == plain


def test_parameters_are_sharded_again_after_an_evaluation(pool: Pool, tmp_path: Path) -> None:
    options = spec(6, 2, steps=2, eval={"every_steps": 1}, **SHARDED)
    assert pool.run(fsdp_cases.left_whole, DEEP, options, tmp_path, world_size=2) == [[], []]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            "peeking",
            "reads them outside of it: call the block, or use strategy zero1 or ddp",
        ),
        ("scalar", "strategy fsdp cannot shard a scalar"),
        ("mixed", "parameters of one type"),
    ],
)
def test_an_unshardable_model_is_refused_on_all_ranks_with_advice(
    pool: Pool, kind: str, words: str
) -> None:
    for found in pool.run(fsdp_cases.refusal, kind, world_size=2):
        assert found.startswith("bad_spec: ")
        assert words in found


def test_a_penalty_may_read_all_parameters(pool: Pool, tmp_path: Path) -> None:
    options = spec(9, 2, steps=4) | {"optimizer": OPTIMIZERS["adamw"]}
    plain = pool.run(fsdp_cases.penalized, DEEP, options, tmp_path / "plain", world_size=1)
    for world_size in (2, 3):
        seen = pool.run(
            fsdp_cases.penalized,
            DEEP,
            options | SHARDED,
            tmp_path / str(world_size),
            world_size=world_size,
        )
        assert all(distance(one.weights, plain[0].weights) <= 1e-12 for one in seen)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8, 4)
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.ModuleList([nn.Linear(4, 4)]))
        self.head = nn.Sequential(nn.Linear(4, 8, bias=False))
        self.head[0].weight = self.embedding.weight


def test_blocks_are_the_outermost_list_elements_without_common_parameters() -> None:
    tied = Tied()
    assert list(blocks(tied).values()) == [tied.body[0], tied.body[2][0]]
    net = Net(DEEP)
    assert list(blocks(net).values()) == list(net.blocks)
    assert blocks(nn.Sequential(nn.Sequential(nn.Linear(2, 2)), nn.ReLU())) != {}
    repeated = nn.Linear(2, 2)
    assert list(blocks(nn.ModuleList([repeated, repeated])).values()) == [repeated]
