"""Properties of every strategy, and the additional guarantees of each.

A strategy is added by a line in ``STRATEGIES``: the tests then check the properties in that line.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine import cases
from tests.engine.reference import distance
from tests.engine.spool import events, records
from tests.engine.step.test_gradient import (
    LONG,
    OPTIMIZERS,
    check_gradients,
    check_weights,
    run,
    spec,
)
from tests.engine.toy import Toy, initial
from tests.harness.ranks import Pool


@dataclass(frozen=True)
class Kept:
    """A strategy's section of the spec, and the contract items that it keeps."""

    section: dict[str, Any]
    per_step: Callable[[int], dict[str, int]] = lambda world_size: {"gloo:all_reduce": 1}
    """Collectives of one more step on a number of ranks, by kind: gradients, and others. Each step
    has one control operation more."""
    per_micro_batch: dict[str, int] = field(default_factory=dict)
    """The same for each micro-batch."""
    gradients: bool = True
    """True if every rank's optimizer gets the whole batch's gradient, of all parameters."""


STRATEGIES = {
    "ddp": Kept({"name": "ddp"}),
    "ddp-copies": Kept({"name": "ddp", "gradient_as_bucket_view": False}),
    "ddp-static": Kept({"name": "ddp", "static_graph": True}),
    "ddp-static-copies": Kept(
        {"name": "ddp", "static_graph": True, "gradient_as_bucket_view": False}
    ),
    "manual": Kept({"name": "manual"}),
    "zero1": Kept(
        {"name": "zero1"}, lambda world_size: {"gloo:all_reduce": 1, "gloo:broadcast": world_size}
    ),
    # Gloo scatters a whole reduced tensor. The second is the norm, of which each rank has a part.
    "fsdp": Kept(
        {"name": "fsdp"}, lambda world_size: {"gloo:all_reduce": 2}, {"gloo:all_gather": 1}
    ),
}
every_strategy = pytest.mark.parametrize("name", STRATEGIES)


def section(name: str, **more: Any) -> dict[str, Any]:
    return {"strategy": STRATEGIES[name].section | more}


@pytest.mark.contract(1)
@every_strategy
@pytest.mark.parametrize(
    ("world_size", "size", "micro", "toy"),
    [
        (1, 7, 3, Toy()),
        (2, 23, 3, Toy(weigh="terms")),
        (3, 10, 2, Toy(weigh="samples", penalty=0.3)),
        (3, 7, 1, Toy(penalty=0.3)),
        (4, 4, 1, Toy(masked="odd")),
        (2, 9, 9, Toy(double=False)),
    ],
    ids=["alone", "terms", "penalty", "penalty-in-an-empty-micro-batch", "weightless", "float32"],
)
def test_the_gradient_equals_that_of_the_whole_batch(
    pool: Pool, tmp_path: Path, name: str, world_size: int, size: int, micro: int, toy: Toy
) -> None:
    options = spec(size, micro, steps=2, **section(name))
    seen, expected = run(pool, tmp_path, toy, options, world_size)
    tolerance = 1e-12 if toy.double else 1e-5
    if STRATEGIES[name].gradients:
        check_gradients(seen, expected, tolerance)
    check_weights(seen, expected, tolerance)
    assert all(one.left_over == [] for one in seen)


@pytest.mark.contract(4)
@every_strategy
def test_the_smaller_last_batch_is_the_mean_over_its_items(
    pool: Pool, tmp_path: Path, name: str
) -> None:
    seen, expected = run(pool, tmp_path, Toy(items=21), spec(8, 2, epochs=2, **section(name)), 2)
    assert sum(len(micro_batch) for one in seen for micro_batch in one.micro_batches) == 42
    check_weights(seen, expected, 1e-12)


@pytest.mark.contract(2)
@every_strategy
@pytest.mark.parametrize(("optimizer", "world_size", "micro"), [("sgd", 2, 3), ("adamw", 4, 1)])
def test_fifty_steps_end_at_the_weights_of_the_reference(
    pool: Pool, tmp_path: Path, name: str, optimizer: str, world_size: int, micro: int
) -> None:
    # An error of the others shows in the first steps.
    steps = 50 if (name, optimizer) in (("ddp", "adamw"), ("fsdp", "sgd")) else 8
    clip = 0.5 if steps == 50 else 1.0
    options = spec(12, micro, **LONG) | {"optimizer": OPTIMIZERS[optimizer], "steps": steps}
    options |= section(name) | {"clip_grad_norm": clip}
    seen, expected = run(pool, tmp_path, Toy(), options, world_size)
    assert min(expected.norms) < clip < max(expected.norms), (
        "clipping must matter in some steps and not in others"
    )
    check_weights(seen, expected, 1e-12)
    assert seen[0].rates == pytest.approx(expected.rates, rel=1e-12)
    norms = [values["train/grad_norm"] for values in records(tmp_path).values()]
    assert norms == pytest.approx(expected.norms, rel=1e-9)


@pytest.mark.contract(5)
@every_strategy
def test_a_whole_batch_of_weight_zero_updates_nothing(
    pool: Pool, tmp_path: Path, name: str
) -> None:
    toy = Toy(masked="all")
    options = spec(4, 1, steps=3) | {"optimizer": OPTIMIZERS["adamw"]} | section(name)
    seen, _ = run(pool, tmp_path, toy, options, 2)
    for one in seen:
        assert one.steps_done == 3
        assert distance(one.weights, initial(toy).state_dict()) == 0


@pytest.mark.contract(5)
@every_strategy
def test_batches_without_weight_change_neither_momentum_nor_weights(
    pool: Pool, tmp_path: Path, name: str
) -> None:
    options = spec(2, 1, steps=8) | {"optimizer": OPTIMIZERS["sgd"]} | section(name)
    seen, expected = run(pool, tmp_path, Toy(masked="odd"), options, 2)
    assert None in expected.losses[1:-1], "steps with a weight are before and after one without"
    check_weights(seen, expected, 1e-12)


@pytest.mark.contract(6)
@every_strategy
def test_a_rank_with_an_empty_micro_batch_keeps_its_buffers(
    pool: Pool, tmp_path: Path, name: str
) -> None:
    seen, _ = run(pool, tmp_path, Toy(buffer=True), spec(4, 1, steps=5, **section(name)), 3)
    assert [len(one.micro_batches) for one in seen] == [10] * 3
    assert [float(one.weights["calls"]) for one in seen] == [10.0, 5.0, 5.0]
    assert all(one.left_over == [] for one in seen)


@pytest.mark.contract(9)
@pytest.mark.parametrize(
    ("name", "world_size", "micro"),
    [("ddp", 2, 6), ("fsdp", 2, 6), ("zero1", 3, 1), *((name, 2, 1) for name in STRATEGIES)],
)
def test_collectives_of_a_step_do_not_depend_on_k(
    pool: Pool, tmp_path: Path, name: str, world_size: int, micro: int
) -> None:
    few, many = (
        pool.run(
            cases.train,
            Toy(),
            {
                "batch": {"size": 12, "micro_size": micro},
                "optimizer": {"name": "sgd"},
                "steps": steps,
                **section(name),
            },
            tmp_path / str(steps),
            None,
            True,
            world_size=world_size,
        )
        for steps in (2, 4)
    )
    for before, after in zip(few, many, strict=True):
        extra = {
            kind: count - before.collectives.get(kind, 0)
            for kind, count in after.collectives.items()
        }
        wanted, micro_batches = STRATEGIES[name], 12 // world_size // micro
        per_step = (
            {"control": 1}
            | wanted.per_step(world_size)
            | {kind: count * micro_batches for kind, count in wanted.per_micro_batch.items()}
        )
        assert {kind: count for kind, count in extra.items() if count} == {
            k: n * 2 for k, n in per_step.items()
        }


RESUMED: dict[str, Any] = {
    "batch": {"size": 14, "micro_size": 2},
    "optimizer": OPTIMIZERS["adamw"],
    "schedule": {"name": "cosine", "warmup_steps": 3, "min_lr": 1e-3},
    "clip_grad_norm": 0.5,
    "steps": 6,
    "checkpoint": {"every_steps": 2},
    "eval": {"every_steps": 3},
}


@pytest.mark.contract(26)
@pytest.mark.parametrize(
    ("name", "world_size"), [("ddp", 1), ("fsdp", 1), *((name, 3) for name in STRATEGIES)]
)
def test_a_resumed_run_is_bitwise_equal_in_the_same_layout(
    pool: Pool, tmp_path: Path, name: str, world_size: int
) -> None:
    options = RESUMED | section(name)
    toy = Toy(items=33, double=False, noise=True, dropout=0.3, width=64)
    whole = pool.run(cases.train, toy, options, tmp_path / "whole", world_size=world_size)
    shutil.copytree(tmp_path / "whole/checkpoints/step-00000004", tmp_path / "again/resume")
    again = pool.run(cases.train, toy, options, tmp_path / "again", world_size=world_size)
    assert events(tmp_path / "again", "resumed")[0]["exact"] is True
    for before, after in zip(whole, again, strict=True):
        assert before.micro_batches[-len(after.micro_batches) :] == after.micro_batches
        for parameter, value in whole[0].weights.items():
            assert torch.equal(value, before.weights[parameter]), (
                f"{parameter} is not the same on all ranks"
            )
            assert torch.equal(value, after.weights[parameter]), parameter
    old, new = records(tmp_path / "whole"), records(tmp_path / "again")
    assert sorted(new) == [5, 6]
    for step, values in new.items():
        for metric in ("train/loss", "train/grad_norm", "train/lr", "eval/loss"):
            assert values.get(metric) == old[step].get(metric)


@pytest.fixture(scope="module")
def whole(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, cases.Seen]:
    """Return the folder and the observations of a run under ddp."""
    folder, toy = tmp_path_factory.mktemp("whole"), Toy(items=33)
    return folder, pool.run(cases.train, toy, RESUMED | section("ddp"), folder, world_size=2)[0]


@pytest.mark.contract(27)
@every_strategy
def test_a_run_resumes_on_other_ranks_and_under_ddp(
    pool: Pool, tmp_path: Path, name: str, whole: tuple[Path, cases.Seen]
) -> None:
    toy = Toy(items=33)
    for world_size, step, source, strategy in (
        (2, 2, whole[0], name),
        (3, 4, tmp_path / "2", name),
        (1, 4, tmp_path / "2", "ddp"),
    ):
        folder = tmp_path / str(world_size)
        shutil.copytree(source / f"checkpoints/step-{step:08d}", folder / "resume")
        again = pool.run(
            cases.train, toy, RESUMED | section(strategy), folder, world_size=world_size
        )
        assert events(folder, "resumed")[0]["step"] == step
        assert distance(again[0].weights, whole[1].weights) <= 1e-12
