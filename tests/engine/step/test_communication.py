"""Number of collectives and control operations per step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine import cases, mutants
from tests.engine.toy import Toy
from tests.harness.ranks import Pool

TOY = Toy()


def per_step(
    pool: Pool,
    folder: Path,
    micro: int,
    *,
    world_size: int = 2,
    mutate: Any = None,
    toy: Toy = TOY,
    **more: Any,
) -> tuple[int, int]:
    """Return the all-reduces and control operations of one more optimizer step: the difference
    between a run of 6 steps and one of 2."""
    counts = []
    for steps in (2, 6):
        options = {
            "batch": {"size": 12, "micro_size": micro},
            "optimizer": {"name": "sgd"},
            "steps": steps,
            **more,
        }
        seen = pool.run(
            cases.train, toy, options, folder / str(steps), mutate, True, world_size=world_size
        )
        counts.append(counted(seen))
    return added(*counts)


def counted(seen: list[cases.Seen]) -> tuple[int, int]:
    """Return the all-reduces and control operations of a run, equal on all ranks."""
    (found,) = {(one.collectives["gloo:all_reduce"], one.collectives["control"]) for one in seen}
    return found


def added(few: tuple[int, int], many: tuple[int, int]) -> tuple[int, int]:
    """Return what each of the four steps has that the longer run has more."""
    steps, rests = zip(*(divmod(b - a, 4) for a, b in zip(few, many, strict=True)), strict=True)
    assert rests == (0, 0)
    return steps


def check_one_per_step(counts: tuple[int, int]) -> None:
    """Check for one bucket of gradients, enough for the toy's 22 parameters, and the control
    operation."""
    assert counts == (1, 1)


@pytest.mark.contract(9)
@pytest.mark.parametrize("micro", [6, 3, 2, 1], ids=lambda micro: f"K={6 // micro}")
@pytest.mark.parametrize("world_size", [2])
def test_a_step_has_one_reduction_and_one_control_operation_for_any_k(
    pool: Pool, tmp_path: Path, micro: int, world_size: int
) -> None:
    check_one_per_step(per_step(pool, tmp_path, micro, world_size=world_size))


@pytest.mark.contract(9)
def test_each_bucket_is_reduced_once(pool: Pool, tmp_path: Path) -> None:
    # A cap of a few bytes gives each of the five parameters its own bucket.
    assert per_step(pool, tmp_path, 2, strategy={"bucket_cap_mb": 1e-6}) == (5, 1)


@pytest.mark.contract(10)
def test_several_forwards_and_methods_need_one_reduction(pool: Pool, tmp_path: Path) -> None:
    toy = Toy(
        weigh="terms", penalty=0.1
    )  # Two forwards per loss, and a method of the model in the penalty.
    options = {"batch": {"size": 12, "micro_size": 2}, "optimizer": {"name": "sgd"}}
    few, many = (
        pool.run(
            cases.train,
            toy,
            {**options, "steps": steps},
            tmp_path / str(steps),
            None,
            True,
            world_size=2,
        )
        for steps in (2, 6)
    )
    check_one_per_step(added(counted(few), counted(many)))


@pytest.mark.contract(10)
def test_a_forward_outside_no_sync_fails_this_check(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        check_one_per_step(per_step(pool, tmp_path, 2, mutate=mutants.forward_outside_no_sync))
