"""Compression of gradients: its error, and its error feedback as a part of a run's state."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.domain.spec.job import Strategy
from lockstep.engine.checkpoints import checkpoint
from lockstep.engine.strategies import STRATEGIES, strategy_for
from tests.engine import cases
from tests.engine.checkpoints.saves import same
from tests.engine.lacking import unused
from tests.engine.reference import distance
from tests.engine.shortage import shortage
from tests.engine.spool import events, records
from tests.engine.strategies.compression_cases import (
    not_restored,
    own_gradient,
    steps,
    weightless,
    without_numbers,
)
from tests.engine.toy import Toy
from tests.harness.ranks import Pool

OPTIONS: dict[str, Any] = {
    "batch": {"size": 12, "micro_size": 6},
    "steps": 3,
    "optimizer": {"name": "sgd", "lr": 0.05},
    "clip_grad_norm": None,
}
WIDE = Toy(items=33, double=False, width=64)
"""Its first layer is 64 × 3: large enough for a smaller product of thin matrices."""
TOLERANCE = {"fp16": 1e-3, "bf16": 1e-2}
"""Of a gradient's 2-norm: two to three roundings to 11 and 8 binary digits."""


def compressed(kind: str, **more: Any) -> dict[str, Any]:
    return {"strategy": {"compression": kind, **more}}


def powersgd(start: int, **more: Any) -> dict[str, Any]:
    return compressed("powersgd", powersgd_start_step=start, **more)


@pytest.mark.contract(20)
@pytest.mark.parametrize("kind", ["fp16", "bf16"])
@pytest.mark.parametrize(("world_size", "micro"), [(2, 6), (3, 1)])
def test_compressed_gradients_are_exact_to_their_rounding(
    pool: Pool, tmp_path: Path, kind: str, world_size: int, micro: int
) -> None:
    # With twelve micro-batches as with two: the accumulation of a rank stays in float32.
    options = OPTIONS | {"batch": {"size": 12, "micro_size": micro}, "steps": 1}
    plain = pool.run(cases.train, WIDE, options, tmp_path / "plain", world_size=world_size)
    rounded = pool.run(
        cases.train, WIDE, options | compressed(kind), tmp_path / kind, world_size=world_size
    )
    for one in rounded:
        off = distance(one.gradients[0], plain[0].gradients[0])
        assert 1e-6 < off <= TOLERANCE[kind]
        assert distance(one.weights, rounded[0].weights) == 0


@pytest.mark.contract(20)
@pytest.mark.parametrize("kind", ["fp16", "bf16"])
def test_rounding_costs_no_more_operations(pool: Pool, tmp_path: Path, kind: str) -> None:
    counts = [
        pool.run(cases.train, WIDE, OPTIONS | more, tmp_path / str(i), None, True, world_size=2)[
            0
        ].collectives
        for i, more in enumerate(({}, compressed(kind)))
    ]
    assert counts[0] == counts[1]


@pytest.mark.contract(20)
def test_powersgd_before_its_start_is_the_plain_mean(pool: Pool, tmp_path: Path) -> None:
    toy = Toy(items=33, width=64)
    options = OPTIONS | {"steps": 5}
    plain = pool.run(cases.train, toy, options, tmp_path / "plain", world_size=3)
    squeezed = pool.run(
        cases.train, toy, options | powersgd(3), tmp_path / "powersgd", world_size=3
    )
    off = [
        distance(found, wanted)
        for found, wanted in zip(squeezed[0].gradients, plain[0].gradients, strict=True)
    ]
    assert max(off[:3]) <= 1e-12
    assert min(off[3:]) > 1e-3
    (warning,) = [event["message"] for event in events(tmp_path / "powersgd", "warning")]
    assert "not the whole batch's" in warning


@pytest.mark.contract(20)
def test_every_rank_gets_the_same_gradient_from_powersgd(pool: Pool, tmp_path: Path) -> None:
    options = OPTIONS | powersgd(1, powersgd_rank=2, bucket_cap_mb=1e-4)
    seen = pool.run(cases.train, WIDE, options, tmp_path, world_size=4)
    for one in seen[1:]:
        assert distance(one.weights, seen[0].weights) == 0


# --- error feedback


def mean_gradient(world_size: int) -> torch.Tensor:
    return torch.stack([own_gradient(rank) for rank in range(world_size)]).mean(0)


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.contract(20)
def test_error_feedback_adds_the_rest_in_later_steps(pool: Pool) -> None:
    found = pool.run(steps, [1.0] * 60, world_size=2)[0]
    wanted = mean_gradient(2)
    assert relative(found[0], wanted) > 0.5, "one column cannot hold this matrix"
    assert relative(torch.stack(found).mean(0), wanted) < 0.25
    without = pool.run(partial(steps, forget=True), [1.0] * 60, world_size=2)[0]
    assert relative(torch.stack(without).mean(0), wanted) > 0.5


@pytest.mark.contract(20)
@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("bad", [0.0, float("nan"), float("inf")])
def test_powersgd_survives_gradients_of_zeros_and_nans(pool: Pool, bad: float, rank: int) -> None:
    found = pool.run(steps, [bad, bad, *[1.0] * 40], rank, world_size=2)[0]
    later = torch.stack(found[2:])
    assert torch.isfinite(later).all()
    assert relative(later.mean(0), mean_gradient(2)) < 0.3
    if rank == 1:
        without = pool.run(partial(steps, repair=False), [bad, bad, *[1.0] * 40], world_size=2)[0]
        assert not relative(torch.stack(without[2:]).mean(0), mean_gradient(2)) < 0.3


@pytest.mark.contract(20)
@pytest.mark.parametrize("penalty", [0.0, 0.1])
def test_a_batch_of_weight_zero_keeps_the_error_feedback(
    pool: Pool, tmp_path: Path, penalty: float
) -> None:
    toy = Toy(items=48, double=False, width=64, penalty=penalty)
    options = (
        OPTIONS | powersgd(1) | {"steps": 4, "checkpoint": {"every_steps": 1, "keep_last": 10}}
    )
    masking = partial(weightless, 2, batch_size=12, size=48)
    pool.run(cases.train, toy, options, tmp_path, masking, world_size=2)
    assert "train/loss" not in records(tmp_path)[3], "the third batch has no weight"
    states = {
        step: checkpoint.load(tmp_path / f"checkpoints/step-{step:08d}") for step in (2, 3, 4)
    }
    for before, after, later in zip(*(states[step]["extra"] for step in (2, 3, 4)), strict=True):
        assert any(error.norm() > 0 for error in before["error"].values())
        for name in ("error", "p", "q"):
            assert same(before[name], after[name]), name
        assert not same(after["error"], later["error"])


@pytest.mark.contract(20)
def test_a_skipped_step_keeps_the_error_feedback(pool: Pool, tmp_path: Path) -> None:
    toy = Toy(items=48, double=False, width=64)
    every = {"steps": 4, "non_finite": "skip", "checkpoint": {"every_steps": 1, "keep_last": 10}}
    spoiling = partial(without_numbers, 2, batch_size=12, size=48)
    pool.run(cases.train, toy, OPTIONS | powersgd(1) | every, tmp_path, spoiling, world_size=2)
    (before, _), (after, _) = (
        checkpoint.load(tmp_path / f"checkpoints/step-{step:08d}")["extra"] for step in (2, 3)
    )
    assert any(error.norm() > 0 for error in before["error"].values())
    for name in ("error", "q"):
        assert same(before[name], after[name]), name


RESUMED = OPTIONS | {
    "steps": 6,
    "optimizer": {"name": "adamw", "lr": 1e-2},
    "checkpoint": {"every_steps": 2},
}
SEVERAL_BUCKETS = {"bucket_cap_mb": 1e-4, "powersgd_rank": 1}


def whole_and_resumed(
    pool: Pool, folder: Path, options: dict[str, Any], world_size: int, mutate: Any = None
) -> list[list[cases.Seen]]:
    whole = pool.run(cases.train, WIDE, options, folder / "whole", mutate, world_size=world_size)
    shutil.copytree(folder / "whole/checkpoints/step-00000004", folder / "again/resume")
    again = pool.run(cases.train, WIDE, options, folder / "again", mutate, world_size=world_size)
    return [whole, again]


def check_bitwise(whole: list[cases.Seen], again: list[cases.Seen], folder: Path) -> None:
    assert events(folder / "again", "resumed")[0]["exact"] is True
    for before, after in zip(whole, again, strict=True):
        for name, value in before.weights.items():
            assert torch.equal(value, after.weights[name]), name
    old = records(folder / "whole")
    for step, values in records(folder / "again").items():
        assert values["train/loss"] == old[step]["train/loss"]


@pytest.mark.contract(20)
@pytest.mark.parametrize(
    ("section", "world_size"),
    [
        (compressed("fp16"), 2),
        (compressed("bf16"), 3),
        (powersgd(2, **SEVERAL_BUCKETS), 2),
        (powersgd(2, **SEVERAL_BUCKETS), 3),
        (powersgd(5), 2),
        (powersgd(2, static_graph=True, gradient_as_bucket_view=True), 2),
    ],
    ids=[
        "fp16",
        "bf16",
        "powersgd",
        "powersgd-3-ranks",
        "powersgd-not-begun",
        "powersgd-static-views",
    ],
)
def test_a_resumed_run_is_bitwise_equal(
    pool: Pool, tmp_path: Path, section: dict[str, Any], world_size: int
) -> None:
    whole, again = whole_and_resumed(pool, tmp_path, RESUMED | section, world_size)
    check_bitwise(whole, again, tmp_path)


# Without its P, Q is drawn again; with P alone torch would need a Q that does not exist.
@pytest.mark.contract(20)
@pytest.mark.parametrize("parts", [("error",), ("p", "q"), ("steps",)], ids="+".join)
def test_dropping_a_part_of_the_error_feedback_fails_this_check(
    pool: Pool, tmp_path: Path, parts: tuple[str, ...]
) -> None:
    options = RESUMED | powersgd(2, **SEVERAL_BUCKETS)
    whole, again = whole_and_resumed(pool, tmp_path, options, 2, partial(not_restored, *parts))
    with pytest.raises(AssertionError):
        check_bitwise(whole, again, tmp_path)


@pytest.mark.contract(20)
def test_on_another_number_of_ranks_the_error_feedback_is_dropped(
    pool: Pool, tmp_path: Path
) -> None:
    options = RESUMED | powersgd(2)
    pool.run(cases.train, WIDE, options, tmp_path / "whole", world_size=2)
    for world_size in (3, 1):
        folder = tmp_path / str(world_size)
        shutil.copytree(tmp_path / "whole/checkpoints/step-00000004", folder / "resume")
        seen = pool.run(cases.train, WIDE, options, folder, world_size=world_size)
        assert seen[0].steps_done == 6
        assert all(torch.isfinite(value).all() for value in seen[0].weights.values())
        warnings = [event["message"] for event in events(folder, "warning")]
        assert any(
            f"2 ranks saved it, and the run now has {world_size}" in message for message in warnings
        )


@pytest.mark.contract(20)
def test_other_buckets_drop_the_error_feedback(pool: Pool, tmp_path: Path) -> None:
    pool.run(cases.train, WIDE, RESUMED | powersgd(2), tmp_path / "whole", world_size=2)
    shutil.copytree(tmp_path / "whole/checkpoints/step-00000004", tmp_path / "again/resume")
    seen = pool.run(
        cases.train,
        WIDE,
        RESUMED | powersgd(2, **SEVERAL_BUCKETS),
        tmp_path / "again",
        world_size=2,
    )
    assert seen[0].steps_done == 6
    warnings = [event["message"] for event in events(tmp_path / "again", "warning")]
    assert any("its gradients are in other buckets" in message for message in warnings)


# --- steps that fail


@pytest.mark.contract(36)
@pytest.mark.parametrize("kind", ["fp16", "bf16"])
@pytest.mark.parametrize("place", ["forward", "mid_backward"])
def test_a_step_that_ran_out_of_memory_is_repeated_under_rounding(
    pool: Pool, tmp_path: Path, kind: str, place: str
) -> None:
    options = OPTIONS | compressed(kind, bucket_cap_mb=1e-4)
    short = partial(shortage, place, rank=1, samples=3, only_last=True)
    disturbed = pool.run(cases.train, WIDE, options, tmp_path / "short", short, world_size=2)
    smaller = options | {"batch": {"size": 12, "micro_size": 3}}
    plain = pool.run(cases.train, WIDE, smaller, tmp_path / "plain", world_size=2)
    for name, value in plain[0].weights.items():
        assert torch.equal(value, disturbed[0].weights[name]), name


@pytest.mark.contract(36)
def test_powersgd_refuses_to_repeat_a_step() -> None:
    classes = {
        kind: strategy_for(Strategy.model_validate({"compression": kind}))
        for kind in ("none", "fp16", "bf16", "powersgd")
    }
    assert {kind: found.repeats for kind, found in classes.items()} == {
        "none": True,
        "fp16": True,
        "bf16": True,
        "powersgd": False,
    }
    assert classes["none"] is STRATEGIES["ddp"]


@pytest.mark.contract(11)
@pytest.mark.parametrize("section", [compressed("fp16"), powersgd(0)], ids=["fp16", "powersgd"])
@pytest.mark.parametrize("rank", [0, None])
def test_an_incomplete_gradient_is_reduced_without_compression(
    pool: Pool, tmp_path: Path, section: dict[str, Any], rank: int | None
) -> None:
    # Exactness is in test_conditional_models: here the first step is complete, and compressed.
    options = OPTIONS | {"batch": {"size": 12, "micro_size": 2}} | section
    lacking = partial(unused, "out.weight", rank=rank, last=True)
    seen = pool.run(cases.train, WIDE, options, tmp_path, lacking, world_size=2)
    assert seen[0].steps_done == OPTIONS["steps"]
    assert all((seen[1].weights[name] == value).all() for name, value in seen[0].weights.items())
    warnings = [event["message"] for event in events(tmp_path, "warning")]
    assert not any("no longer the same" in message for message in warnings)
