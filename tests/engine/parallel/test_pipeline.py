"""Stages of a model over several ranks: the training of a plain loop, for any layout."""

from __future__ import annotations

import math
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.engine.runtime.errors import EngineError
from tests.engine.parallel import parallel_cases as cases
from tests.engine.parallel.small_lm import Expected, Masked, deep, reference
from tests.engine.parallel.test_tensor import RAGGED, SETTINGS, check, observed, sizes
from tests.engine.reference import batches_of
from tests.engine.spool import events, records
from tests.harness.ranks import Pool

Layout = tuple[int, int, int]
"""Copies, tensor, pipeline."""


def layout(tensor: int, pipeline: int, strategy: str = "ddp") -> dict[str, Any]:
    name, _, shard = strategy.partition(" ")
    return {
        "parallel": {"tensor": tensor, "pipeline": pipeline},
        "strategy": {"name": name, "shard": int(shard) if shard else None},
    }


def run(
    pool: Pool,
    folder: Path,
    of: Layout,
    settings: dict[str, Any],
    *,
    mutate: Any = None,
    task: cases.SmallTask | None = None,
) -> tuple[Expected, list[list[int]]]:
    """Train; return what was logged and saved, and the items of each batch."""
    copies, tensor, pipeline = of
    world = copies * tensor * pipeline
    arguments = settings, folder, mutate, task or cases.Deep()
    seen = pool.run(cases.train, *arguments, world_size=world)
    copy_of = [rank // tensor % copies for rank in range(world)]
    assert all(seen[rank] == seen[copy_of[rank] * tensor] for rank in range(world))
    batches = batches_of(
        seen[: copies * tensor : tensor], sizes(settings), settings["batch"]["micro_size"]
    )
    return observed(folder), batches


@pytest.mark.contract(1, 2, 3, 4, 6, 16, 19, 25)
@pytest.mark.parametrize(
    ("of", "strategy", "more"),
    [
        ((1, 1, 2), "ddp", {}),
        ((2, 1, 2), "manual", {}),
    ],
    ids=str,
)
def test_a_model_in_stages_trains_as_a_plain_loop(
    pool: Pool, tmp_path: Path, of: Layout, strategy: str, more: dict[str, Any]
) -> None:
    settings = SETTINGS | layout(*of[1:], strategy) | more
    found, batches = run(pool, tmp_path, of, settings)
    check(found, reference(settings, 3, batches, partial(deep, Masked)))
    assert events(tmp_path, "warning") == []


@pytest.mark.contract(2, 26)
@pytest.mark.parametrize("stages", [2, 4])
def test_a_pipeline_alone_changes_no_bit(pool: Pool, tmp_path: Path, stages: int) -> None:
    found = []
    for count in (1, stages):
        settings = SETTINGS | layout(1, count) | RAGGED
        folder = tmp_path / str(count)
        task = cases.Deep(blocks=stages + 1, tied=False)
        found.append(run(pool, folder, (1, 1, count), settings, task=task)[0])
    plain, staged = found
    assert staged.losses == plain.losses
    assert staged.norms == plain.norms
    values = records(tmp_path / str(stages))[3]
    parts = {name: value for name, value in values.items() if name.startswith("time/")}
    step_seconds = parts.pop("time/step_seconds")
    assert math.fsum(parts.values()) == pytest.approx(step_seconds)
    assert values["perf/bubble"] == pytest.approx(parts["time/gradient_seconds"] / step_seconds)
    assert parts["time/gradient_seconds"] > 0
    assert all(torch.equal(staged.weights[key], plain.weights[key]) for key in plain.weights)


@pytest.mark.contract(2, 3, 16)
@pytest.mark.parametrize(
    "mutate",
    [
        cases.last_forward_outside_no_sync,
        cases.weights_of_every_rank,
        cases.no_sum_of_tied_weights,
    ],
)
def test_a_wrong_rule_fails_this_check(pool: Pool, tmp_path: Path, mutate: Any) -> None:
    with pytest.raises((AssertionError, EngineError)) as seen:
        compared(pool, tmp_path, mutate)
    if isinstance(seen.value, EngineError):
        assert seen.value.reason == "diverged"


def compared(pool: Pool, folder: Path, mutate: Any) -> None:
    settings = SETTINGS | layout(1, 2) | {"steps": 3}
    found, batches = run(pool, folder, (2, 1, 2), settings, mutate=mutate)
    check(found, reference(settings, 3, batches, partial(deep, Masked)))


def test_recomputed_activations_and_an_evaluation_change_nothing(
    pool: Pool, tmp_path: Path
) -> None:
    more = {"activation_checkpointing": True, "eval": {"every_steps": 2}, "loader": {"workers": 1}}
    settings = SETTINGS | layout(1, 2) | more | {"steps": 4}
    found, batches = run(pool, tmp_path / "more", (2, 1, 2), settings)
    check(found, reference(settings, 3, batches, partial(deep, Masked)))
    plain = SETTINGS | {"eval": {"every_steps": 2}, "steps": 4}
    run(pool, tmp_path / "one", (1, 1, 1), plain)
    for step in (2, 4):
        evaluated = records(tmp_path / "more")[step]["eval/loss"]
        assert evaluated == pytest.approx(records(tmp_path / "one")[step]["eval/loss"], rel=1e-12)


def test_a_task_names_the_blocks_of_its_stages(pool: Pool, tmp_path: Path) -> None:
    settings = SETTINGS | layout(1, 2) | {"steps": 3}
    found, batches = run(pool, tmp_path, (1, 1, 2), settings, task=cases.Chain())
    plain, _ = run(pool, tmp_path / "one", (1, 1, 1), SETTINGS | {"steps": 3}, task=cases.Chain())
    assert batches
    check(found, plain)


# --- checkpoints

SAVED = {"checkpoint": {"every_steps": 2, "keep_last": 9}, "steps": 4}


@pytest.mark.contract(27)
def test_loading_and_saving_gives_the_same_bytes_on_any_layout(pool: Pool, tmp_path: Path) -> None:
    first, saved = tmp_path / "first", "checkpoints/step-00000002"
    run(pool, first, (1, 1, 1), SETTINGS | {"steps": 2})
    for other in ((1, 1, 2), (2, 1, 2), (1, 2, 2)):
        folder = tmp_path / str(other)
        shutil.copytree(first / saved, folder / "resume")
        settings = SETTINGS | layout(*other[1:]) | {"steps": 2}
        world = math.prod(other)
        pool.run(cases.train, settings, folder, None, cases.Deep(), world_size=world)
        states = [each / saved / "state.safetensors" for each in (first, folder)]
        assert states[0].read_bytes() == states[1].read_bytes(), other


# --- checks at the start


@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 1), (1, 2)])
def test_a_check_without_a_gradient_is_reported(
    pool: Pool, tmp_path: Path, tensor: int, pipeline: int
) -> None:
    settings = SETTINGS | layout(tensor, pipeline) | {"steps": 1}
    pool.run(cases.train, settings, tmp_path, None, cases.Masked(), world_size=2)
    warnings = [event["message"] for event in events(tmp_path, "warning")]
    assert any("the cut was checked without a gradient" in each for each in warnings), warnings


@pytest.mark.parametrize(
    ("task", "stages", "words"),
    [
        (cases.TwoCalls(), 2, "loss.. calls a block 2 times"),
        (cases.Penalized(), 2, "penalty.. reads all parameters"),
        (cases.Counting(), 2, "a forward changes blocks.1.seen"),
        (cases.Half(), 3, "stage 1 has no parameter to train"),
        (cases.Shallow(), 3, "3 stages need a block each, and the model has 2"),
        (cases.OddBlocks("tuple"), 2, "blocks.0 returns a tuple; expected one tensor"),
        (cases.OddBlocks("skip"), 2, "blocks.0 takes a second tensor with a gradient"),
        (cases.OddBlocks("carried"), 2, "is not that of the whole model"),
        (cases.OddBlocks("dict"), 2, "Odd has no nn.ModuleList"),
    ],
    ids=["twice", "penalty", "moves", "frozen", "few", "tuple", "skip", "carried", "no list"],
)
def test_a_model_that_stages_cannot_share_is_refused(
    pool: Pool, tmp_path: Path, task: cases.SmallTask, stages: int, words: str
) -> None:
    settings = SETTINGS | layout(1, stages)
    with pytest.raises(EngineError, match=words) as seen:
        pool.run(cases.train, settings, tmp_path, None, task, world_size=stages)
    assert seen.value.reason == "bad_spec"
