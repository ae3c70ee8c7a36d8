"""A loss or gradient that is not finite never reaches the weights, and all ranks detect it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine import cases, numerics
from tests.engine.numerics import End, Odd
from tests.engine.reference import Expected, batches_of, distance, rate, reference
from tests.engine.spool import events, records
from tests.engine.toy import Toy
from tests.harness.ranks import Pool

pytestmark = pytest.mark.contract(17)

STEPS, BATCH = 6, 12
SGD = {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3}
UNWEIGHTED = [0] * BATCH
"""Item 0 has no unmasked position: the reference makes no update for this batch, and its schedule
continues."""


def spec(micro: int, policy: str = "skip", **more: Any) -> dict[str, Any]:
    return {
        "batch": {"size": BATCH, "micro_size": micro},
        "optimizer": cases.ADAMW,
        "schedule": {"name": "cosine", "warmup_steps": 2, "min_lr": 1e-3},
        "clip_grad_norm": 0.5,
        "steps": STEPS,
        "non_finite": policy,
        **more,
    }


@pytest.fixture(scope="module")
def batches(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """Return the items of each batch, which are the same in every layout."""
    (seen,) = pool.run(
        cases.train, Toy(), spec(BATCH), tmp_path_factory.mktemp("plain"), world_size=1
    )
    return batches_of([seen.micro_batches], [BATCH] * STEPS, BATCH)


@pytest.fixture(params=[None, numerics.as_on_a_device], ids=["host", "device"])
def mutate(request: pytest.FixtureRequest) -> Any:
    """Decide about a step on the host, or where its loss is."""
    return request.param


def once_in(batches: list[list[int]], step: int, start: int = 0) -> int:
    """Return an item with weight that is in the batch of this step, at or after position ``start``,
    and in no other batch."""
    others = {item for index, batch in enumerate(batches) if index != step for item in batch}
    return next(item for item in batches[step][start:] if item not in others and item % 6)


def without(batches: list[list[int]], *steps: int, upto: int = STEPS) -> Expected:
    settings = spec(BATCH)
    kept = [UNWEIGHTED if index in steps else batch for index, batch in enumerate(batches)][:upto]
    # The schedule is that of the whole run, even if the run ended early.
    kept += [UNWEIGHTED] * (STEPS - len(kept))
    return reference(Toy(), settings, kept)


def check_skipped(ends: list[End], expected: Expected, folder: Path, step: int) -> None:
    for one in ends:
        assert (one.error, one.steps_done) == ("", STEPS)
        assert distance(one.weights, expected.weights) <= 1e-12
    lines = records(folder)
    assert [lines[index + 1]["train/lr"] for index in range(STEPS)] == pytest.approx(
        [rate(spec(BATCH), index, STEPS) for index in range(STEPS)]
    )
    assert lines[step + 1]["train/grad_norm"] == "NaN"
    (warning,) = [
        one["message"] for one in events(folder, "warning") if "skipped" in one["message"]
    ]
    assert f"step {step + 1} " in warning


@pytest.mark.parametrize(("world_size", "micro", "start"), [(1, 4, 8), (2, 2, 0), (2, 2, 10)])
def test_a_step_with_a_nan_counts_as_one_without_weight(
    pool: Pool,
    tmp_path: Path,
    batches: list[list[int]],
    world_size: int,
    micro: int,
    start: int,
    mutate: Any,
) -> None:
    odd = Odd(nan=(once_in(batches, 2, start),))
    ends = pool.run(
        numerics.train, Toy(), spec(micro), tmp_path, odd, mutate, world_size=world_size
    )
    check_skipped(ends, without(batches, 2), tmp_path, 2)
    assert records(tmp_path)[3]["train/loss"] == "NaN"


@pytest.mark.parametrize("name", ["manual", "zero1", "fsdp"])
def test_no_strategy_moves_its_shards_by_a_nan(
    pool: Pool, tmp_path: Path, batches: list[list[int]], name: str, mutate: Any
) -> None:
    odd = Odd(nan=(once_in(batches, 0),), steep=(once_in(batches, 2),))
    options = spec(3, strategy={"name": name})
    ends = pool.run(numerics.train, Toy(), options, tmp_path, odd, mutate, world_size=2)
    expected = without(batches, 0, 2)
    for one in ends:
        assert (one.error, one.steps_done) == ("", STEPS)
        assert distance(one.weights, expected.weights) <= 1e-12


def test_a_skipped_step_restores_the_buffers_of_the_model(
    pool: Pool, tmp_path: Path, batches: list[list[int]], mutate: Any
) -> None:
    odd = Odd(nan=(once_in(batches, 2),))
    ends = pool.run(numerics.train, Toy(buffer=True), spec(2), tmp_path, odd, mutate, world_size=2)
    for one in ends:
        assert float(one.weights["calls"]) == (STEPS - 1) * BATCH / 2 / 2


def test_an_update_in_spite_of_a_nan_fails_this_check(
    pool: Pool, tmp_path: Path, batches: list[list[int]]
) -> None:
    odd = Odd(nan=(once_in(batches, 2),))
    ends = pool.run(
        numerics.train, Toy(), spec(4), tmp_path, odd, numerics.update_anyway, world_size=2
    )
    with pytest.raises(AssertionError):
        check_skipped(ends, without(batches, 2), tmp_path, 2)


def test_a_gradient_that_is_nan_is_skipped_though_its_loss_is_finite(
    pool: Pool, tmp_path: Path, batches: list[list[int]], mutate: Any
) -> None:
    odd = Odd(steep=(once_in(batches, 3),))
    ends = pool.run(numerics.train, Toy(), spec(3), tmp_path, odd, mutate, world_size=2)
    check_skipped(ends, without(batches, 3), tmp_path, 3)
    assert math.isfinite(records(tmp_path)[4]["train/loss"])


def test_a_step_that_is_neither_clipped_nor_logged_is_checked(
    pool: Pool, tmp_path: Path, batches: list[list[int]], mutate: Any
) -> None:
    odd = Odd(steep=(once_in(batches, 2),))
    options = spec(3, "stop", clip_grad_norm=None, log_every_steps=STEPS)
    ends = pool.run(numerics.train, Toy(), options, tmp_path, odd, mutate, world_size=2)
    for one in ends:
        assert "the norm of the gradient of step 3 is nan, though its loss is " in one.error
        assert all(torch.isfinite(value).all() for value in one.weights.values())
    assert records(tmp_path)[3]["train/grad_norm"] == "NaN"


def test_stop_ends_all_ranks_before_the_update(
    pool: Pool, tmp_path: Path, batches: list[list[int]]
) -> None:
    odd = Odd(nan=(once_in(batches, 2, 6),))
    ends = pool.run(numerics.train, Toy(), spec(2, "stop"), tmp_path, odd, world_size=2)
    expected = without(batches, upto=2)
    for one in ends:
        assert one.error == "non_finite: the loss of step 3 is nan"
        assert one.steps_done == 2
        assert distance(one.weights, expected.weights) <= 1e-12
    assert records(tmp_path)[3]["train/loss"] == "NaN"


def test_on_a_device_stop_comes_one_step_late_without_an_update(
    pool: Pool, tmp_path: Path, batches: list[list[int]]
) -> None:
    odd = Odd(nan=(once_in(batches, 2, 6),))
    # A checkpoint after every later step: none may be written for a step that may not be finite.
    options = spec(2, "stop", checkpoint={"every_steps": 3})
    ends = pool.run(
        numerics.train,
        Toy(),
        options,
        tmp_path / "saves",
        odd,
        numerics.as_on_a_device,
        world_size=2,
    )
    assert {one.error for one in ends} == {"non_finite: the loss of step 3 is nan"}
    assert {one.steps_done for one in ends} == {3}
    assert events(tmp_path / "saves", "checkpoint") == []
    ends = pool.run(
        numerics.train,
        Toy(),
        spec(2, "stop"),
        tmp_path / "late",
        odd,
        numerics.as_on_a_device,
        world_size=2,
    )
    expected = without(batches, 2, upto=4)
    for one in ends:
        assert (one.error, one.steps_done) == ("non_finite: the loss of step 3 is nan", 4)
        assert distance(one.weights, expected.weights) <= 1e-12
    assert records(tmp_path / "late")[3]["train/loss"] == "NaN"


@pytest.mark.parametrize("optimizer", [cases.ADAMW, SGD], ids=["adamw", "sgd"])
def test_a_skipped_first_step_changes_no_state(
    pool: Pool, tmp_path: Path, batches: list[list[int]], optimizer: dict[str, Any], mutate: Any
) -> None:
    odd = Odd(nan=(once_in(batches, 0),))
    options = spec(4, optimizer=optimizer, steps=1)
    (end,) = pool.run(numerics.train, Toy(), options, tmp_path, odd, mutate, world_size=1)
    assert distance(end.weights, numerics.initial_weights(Toy())) <= 0
    assert end.state, "there is state, and it was not touched"
    assert all(not value.any() for state in end.state.values() for value in state.values())


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_nan_in_the_first_batch_names_the_step_on_all_ranks(
    pool: Pool, tmp_path: Path, batches: list[list[int]], world_size: int
) -> None:
    odd = Odd(nan=(once_in(batches, 0),))
    ends = pool.run(numerics.train, Toy(), spec(3, "stop"), tmp_path, odd, world_size=world_size)
    for one in ends:
        assert one.error.startswith(
            "non_finite: the loss of step 1 is nan, before any update: check"
        )
        assert one.steps_done == 0
    assert len(ends) == world_size


def test_skipped_steps_are_reported_ever_more_rarely_and_limited(
    pool: Pool, tmp_path: Path
) -> None:
    odd = Odd(nan=tuple(range(40)))
    ends = pool.run(numerics.train, Toy(), spec(12, steps=500), tmp_path, odd, world_size=1)
    assert ends[0].error.startswith(
        "non_finite: the loss of step 100 is nan, as in the previous 99 steps"
    )
    messages = [
        one["message"] for one in events(tmp_path, "warning") if "skipped" in one["message"]
    ]
    assert [text.split("the step is skipped, the ")[1].split()[0] for text in messages] == [
        "1st", "2nd", "4th", "8th", "16th", "32nd", "64th",
    ]  # fmt: skip
    assert sorted(records(tmp_path)) == list(range(1, 101))
