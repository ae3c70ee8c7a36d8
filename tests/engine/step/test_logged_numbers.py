"""The logged norm, rate and loss are those of the whole batch, and the times of a step add up."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.domain.training import series
from tests.engine import cases, mutants
from tests.engine.cases import Seen
from tests.engine.reference import Expected, batches_of, distance, rate, reference
from tests.engine.spool import events, records
from tests.engine.toy import Toy
from tests.harness.ranks import Pool

OPTIONS = cases.OPTIONS | {
    "batch": {"size": 14, "micro_size": 3},
}
LAYOUTS = [(1, 14), (2, 3), (3, 2), (4, 1)]


def run(
    pool: Pool, folder: Path, layout: tuple[int, int], mutate: Any = None
) -> tuple[list[Seen], Expected]:
    world_size, micro = layout
    options = OPTIONS | {"batch": {"size": 14, "micro_size": micro}}
    seen = pool.run(cases.train, Toy(), options, folder, mutate, world_size=world_size)
    return seen, reference(
        Toy(), options, batches_of([one.micro_batches for one in seen], [14] * 12, micro)
    )


def check_norms(seen: list[Seen], expected: Expected, folder: Path) -> None:
    logged = [values["train/grad_norm"] for values in records(folder).values()]
    assert logged == pytest.approx(expected.norms, rel=1e-12)
    for one in seen[1:]:
        for here, there in zip(one.gradients, seen[0].gradients, strict=True):
            assert all(torch.equal(here[name], there[name]) for name in there), (
                "clipped gradients differ between ranks"
            )


def check_rates(seen: list[Seen], folder: Path) -> None:
    wanted = [rate(OPTIONS, step, 12) for step in range(12)]
    for one in seen:
        assert one.rates == pytest.approx(wanted, rel=1e-12)
    assert [values["train/lr"] for values in records(folder).values()] == pytest.approx(
        wanted, rel=1e-12
    )


def check_losses(expected: Expected, folder: Path) -> None:
    assert [values["train/loss"] for values in records(folder).values()] == pytest.approx(
        expected.losses, rel=1e-12
    )


@pytest.mark.contract(16, 18, 19)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_norm_rate_and_loss_equal_the_reference_for_any_layout(
    pool: Pool, tmp_path: Path, layout: tuple[int, int]
) -> None:
    seen, expected = run(pool, tmp_path, layout)
    check_norms(seen, expected, tmp_path)
    check_rates(seen, tmp_path)
    check_losses(expected, tmp_path)
    assert all(distance(one.weights, expected.weights) <= 1e-12 for one in seen)


@pytest.mark.contract(18)
def test_a_schedule_stepped_by_every_rank_fails_this_check(pool: Pool, tmp_path: Path) -> None:
    seen, _ = run(pool, tmp_path, (2, 3), mutants.schedule_counts_every_rank)
    with pytest.raises(AssertionError):
        check_rates(seen, tmp_path)


@pytest.mark.contract(19)
def test_the_loss_of_rank_0_alone_fails_this_check(pool: Pool, tmp_path: Path) -> None:
    _, expected = run(pool, tmp_path, (2, 3), mutants.loss_of_rank_0)
    with pytest.raises(AssertionError):
        check_losses(expected, tmp_path)


def test_a_loss_of_several_terms_is_logged_as_their_sum_and_each(
    pool: Pool, tmp_path: Path
) -> None:
    pool.run(cases.train, Toy(weigh="terms"), OPTIONS, tmp_path, world_size=2)
    for values in records(tmp_path).values():
        assert values["train/loss"] == pytest.approx(
            values["train/loss/fit"] + values["train/loss/mean"]
        )
        assert values["train/weight/mean"] == 14


def test_the_parts_of_a_step_add_up_and_give_its_throughput(pool: Pool, tmp_path: Path) -> None:
    options = OPTIONS | {"checkpoint": {"every_steps": 4}, "eval": {"every_steps": 6}}
    pool.run(cases.train, Toy(), options, tmp_path, world_size=2)
    lines = records(tmp_path)
    assert sorted(lines) == list(range(1, 13))
    for step, values in lines.items():
        parts = {name: value for name, value in values.items() if name.startswith("time/")}
        whole = parts.pop("time/step_seconds")
        assert math.fsum(parts.values()) == pytest.approx(whole, rel=1e-9)
        assert ("time/checkpoint_seconds" in parts) == (step in {4, 8, 12})
        assert ("time/eval_seconds" in parts) == (step in {6, 12})
        other_seconds = parts.get("time/checkpoint_seconds", 0) + parts.get("time/eval_seconds", 0)
        assert values["throughput/samples_per_second"] == pytest.approx(
            14 / (whole - other_seconds)
        )
        assert {name for name in values if not name.startswith("eval/")} <= {
            metric.name for metric in series.METRICS
        }
        assert values["memory/peak_bytes"] > 1e7


def test_only_every_nth_step_and_the_last_are_logged(pool: Pool, tmp_path: Path) -> None:
    pool.run(cases.train, Toy(), OPTIONS | {"log_every_steps": 5}, tmp_path, world_size=1)
    assert sorted(records(tmp_path)) == [5, 10, 12]


def test_evaluation_counts_every_item_once_and_changes_no_weight(
    pool: Pool, tmp_path: Path
) -> None:
    toy = Toy(items=3)  # Fewer items than ranks: the fourth rank has nothing to evaluate.
    short = OPTIONS | {"steps": 4}
    found, plain = [], pool.run(cases.train, toy, short, tmp_path / "plain", world_size=1)[0]
    for world_size, workers in ((1, 1), (2, 0), (4, 2)):
        folder = tmp_path / str(world_size)
        options = short | {"eval": {"every_steps": 4}, "loader": {"workers": workers}}
        seen = pool.run(cases.train, toy, options, folder, world_size=world_size)
        found.append(records(folder)[4]["eval/loss"])
        if world_size == 1:
            assert all(
                torch.equal(plain.weights[name], seen[0].weights[name]) for name in plain.weights
            )
    from tests.engine.reference import objective
    from tests.engine.toy import initial

    model = initial(toy)
    model.load_state_dict(plain.weights)
    wanted = objective(toy, model, [0, 1, 2])
    assert wanted is not None
    assert found == pytest.approx([wanted.item()] * 3, rel=1e-10)


def test_the_plan_event_matches_the_run(pool: Pool, tmp_path: Path) -> None:
    pool.run(
        cases.train,
        Toy(items=31),
        OPTIONS | {"batch": {"size": 14, "micro_size": 3}},
        tmp_path,
        world_size=2,
    )
    (plan,) = events(tmp_path, "plan")
    assert plan == {
        "batch_size": 14,
        "micro_batch_size": 3,
        "accumulation_steps": 3,
        "world_size": 2,
        "tensor": 1,
        "pipeline": 1,
        "copies": 2,
        "blocks": None,
        "steps": 12,
        "parameters": 22,
        "samples": 31,
        "memory": None,
    }
    assert len(events(tmp_path, "running")) == 1


def test_a_nan_loss_stops_all_ranks_before_the_update(pool: Pool, tmp_path: Path) -> None:
    from lockstep.engine.runtime.errors import EngineError

    options = OPTIONS | {
        "optimizer": {"name": "sgd", "lr": 1000.0},
        "clip_grad_norm": None,
        "steps": 500,
    }
    with pytest.raises(EngineError, match=r"the loss of step \d+ is (nan|inf)") as caught:
        pool.run(cases.train, Toy(), options, tmp_path, world_size=2)
    assert caught.value.reason == "non_finite"
    lines = records(tmp_path)
    assert lines[max(lines)]["train/loss"] in {"NaN", "Infinity"}
