"""``zero1``: the optimizer's state is sharded, and nothing else about a run changes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from lockstep.engine.checkpoints import checkpoint
from lockstep.engine.runtime.errors import EngineError
from tests.engine import cases
from tests.engine.reference import distance
from tests.engine.shortage import shortage
from tests.engine.strategies import strategy_cases
from tests.engine.toy import Toy
from tests.harness.ranks import Pool

OPTIONS = cases.OPTIONS | {
    "steps": 4,
    "checkpoint": {"every_steps": 2},
}
ZERO1 = {"strategy": {"name": "zero1"}}
TOY = Toy(items=33)


@pytest.mark.parametrize(("world_size", "optimizer"), [(2, "sgd"), (3, "adamw"), (4, "sgd")])
def test_weights_equal_those_of_ddp(
    pool: Pool, tmp_path: Path, world_size: int, optimizer: str
) -> None:
    # On four ranks some have no parameter of some group: there are five parameters in two groups.
    options = OPTIONS | (
        {} if optimizer == "adamw" else {"optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}}
    )
    shared, plain = (
        pool.run(cases.train, TOY, options | more, tmp_path / str(index), world_size=world_size)
        for index, more in enumerate((ZERO1, {}))
    )
    for one, other in zip(shared, plain, strict=True):
        assert distance(one.weights, other.weights) <= 1e-12
        assert one.rates == other.rates


def test_each_rank_holds_only_its_shard_of_the_moments(pool: Pool, tmp_path: Path) -> None:
    wide = Toy(items=33, width=64)
    plain = pool.run(strategy_cases.moments, wide, OPTIONS, tmp_path / "ddp", world_size=2)
    shared = pool.run(
        strategy_cases.moments, wide, OPTIONS | ZERO1, tmp_path / "zero1", world_size=2
    )
    whole = plain[0]["inside"]
    assert whole == 2 * plain[0]["parameters"], "AdamW has two moments per parameter"
    assert sum(one["inside"] for one in shared) == whole
    # Whole parameters are assigned: the largest of them here is 60 % of the model.
    assert max(one["inside"] for one in shared) <= 0.62 * whole
    assert [one["gathered"] for one in shared] == [0, 0], (
        "state gathered for a checkpoint is freed after it"
    )


def test_after_a_resume_no_rank_holds_other_shards(pool: Pool, tmp_path: Path) -> None:
    import shutil

    pool.run(cases.train, TOY, OPTIONS | ZERO1, tmp_path / "whole", world_size=3)
    shutil.copytree(tmp_path / "whole/checkpoints/step-00000002", tmp_path / "again/resume")
    again = pool.run(strategy_cases.moments, TOY, OPTIONS | ZERO1, tmp_path / "again", world_size=2)
    assert sum(one["inside"] for one in again) == 2 * again[0]["parameters"]
    assert [one["outside"] for one in again] == [0, 0]


def test_the_saved_state_equals_that_of_ddp(pool: Pool, tmp_path: Path) -> None:
    states = []
    for index, more in enumerate(({}, ZERO1)):
        pool.run(cases.train, TOY, OPTIONS | more, tmp_path / str(index), world_size=3)
        states.append(checkpoint.load(tmp_path / str(index) / "checkpoints/step-00000002"))
    plain, shared = (state["optimizer"] for state in states)
    assert shared["param_groups"] == plain["param_groups"]
    assert shared["state"].keys() == plain["state"].keys()
    for index, moments in plain["state"].items():
        assert distance(shared["state"][index], moments) <= 1e-12


def test_a_step_that_ran_out_of_memory_is_repeated(pool: Pool, tmp_path: Path) -> None:
    options = OPTIONS | {"batch": {"size": 24, "micro_size": 6}} | ZERO1
    short = partial(shortage, "mid_backward", rank=1, samples=2, after=5)
    disturbed = pool.run(cases.train, TOY, options, tmp_path / "short", short, world_size=2)
    plain = pool.run(cases.train, TOY, options, tmp_path / "plain", world_size=2)
    assert distance(disturbed[1].weights, plain[0].weights) <= 1e-12


def test_parameters_of_two_number_formats_are_refused(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(
        EngineError, match="one number format, and the model has float32 and float64"
    ) as caught:
        pool.run(
            cases.train, TOY, OPTIONS | ZERO1, tmp_path, strategy_cases.two_formats, world_size=2
        )
    assert caught.value.reason == "bad_spec"


def test_no_warning_of_torch_reaches_a_run(pool: Pool, tmp_path: Path) -> None:
    pool.run(
        cases.train,
        TOY,
        OPTIONS | ZERO1,
        tmp_path,
        strategy_cases.warnings_are_errors,
        world_size=2,
    )
