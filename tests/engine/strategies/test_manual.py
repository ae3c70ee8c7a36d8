"""Data parallelism by hand equals torch DDP, and also handles a missing gradient."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.strategies.ddp import DDP
from lockstep.engine.strategies.experimental.local_sgd import LocalSGD
from lockstep.engine.strategies.fsdp import FSDP
from lockstep.engine.strategies.manual import Manual
from tests.engine import cases
from tests.engine.lacking import unused
from tests.engine.reference import distance
from tests.engine.shortage import PLACES, shortage
from tests.engine.spool import events, records
from tests.engine.strategies import strategy_cases
from tests.engine.toy import Toy
from tests.harness.ranks import Pool

OPTIONS = cases.OPTIONS | {"steps": 5}


def section(name: str) -> dict[str, Any]:
    return {"strategy": {"name": name}}


def check_equal(seen: list[cases.Seen], other: list[cases.Seen]) -> None:
    for one, two in zip(seen, other, strict=True):
        for found, wanted in zip(one.gradients, two.gradients, strict=True):
            assert distance(found, wanted) <= 1e-12
        assert distance(one.weights, two.weights) <= 1e-12


@pytest.mark.contract(13)
@pytest.mark.parametrize("world_size", [2, 3])
def test_gradients_and_weights_equal_those_of_torch_ddp(
    pool: Pool, tmp_path: Path, world_size: int
) -> None:
    by_hand, ddp = (
        pool.run(
            cases.train,
            Toy(items=33),
            OPTIONS | section(name),
            tmp_path / name,
            world_size=world_size,
        )
        for name in ("manual", "ddp")
    )
    check_equal(by_hand, ddp)
    assert [
        values["train/grad_norm"] for values in records(tmp_path / "manual").values()
    ] == pytest.approx(
        [values["train/grad_norm"] for values in records(tmp_path / "ddp").values()], rel=1e-12
    )


@pytest.mark.contract(13)
def test_a_sum_that_is_not_divided_fails_this_check(pool: Pool, tmp_path: Path) -> None:
    plain = pool.run(
        cases.train, Toy(items=33), OPTIONS | section("ddp"), tmp_path / "ddp", world_size=2
    )
    wrong = pool.run(
        cases.train,
        Toy(items=33),
        OPTIONS | section("manual"),
        tmp_path / "manual",
        strategy_cases.sum_without_division,
        world_size=2,
    )
    with pytest.raises(AssertionError):
        check_equal(wrong, plain)


STARTS = {
    "order": r"parameter 2 is b\.weight \(3, 3\) float32 on rank 0 and c\.weight \(3, 3\) float32 on rank 1",
    "shape": r"parameter 2 is b\.weight \(3, 3\) float32 on rank 0 and b\.weight \(4, 3\) float32 on rank 1",
    "fewer": r"parameter 4 is c\.weight \(3, 3\) float32 on rank 0 and none on rank 1",
    "value": r"the initial weights of the model differ from rank 0 \(rank 1: b\.weight\)",
}


@pytest.mark.contract(22)
@pytest.mark.parametrize("kind", STARTS)
def test_the_wrapper_itself_refuses_models_that_differ(pool: Pool, kind: str) -> None:
    with pytest.raises(EngineError, match=STARTS[kind]) as caught:
        pool.run(strategy_cases.wrapped_by_hand, kind, 1, world_size=3)
    assert caught.value.reason == "bad_spec"


@pytest.mark.contract(22)
def test_the_wrapper_accepts_models_that_are_equal(pool: Pool) -> None:
    pool.run(strategy_cases.wrapped_by_hand, "none", 0, world_size=3)


@pytest.mark.parametrize("wrapper", [Manual, DDP, FSDP, LocalSGD])
def test_buffers_are_those_of_rank_0_at_the_start(pool: Pool, wrapper: Any) -> None:
    assert pool.run(strategy_cases.buffers_of_rank_0, wrapper, world_size=3) == [[0.0, 0.0]] * 3


@pytest.mark.contract(11)
@pytest.mark.parametrize("rank", [0, 1, None])
def test_a_parameter_without_gradient_is_sent_as_zeros(
    pool: Pool, tmp_path: Path, rank: int | None
) -> None:
    options = {
        "batch": {"size": 12, "micro_size": 2},
        "steps": 3,
        "optimizer": {"name": "sgd"},
    } | section("manual")
    lacking = partial(unused, "out.weight", rank=rank, last=True)
    seen = pool.run(cases.train, Toy(), options, tmp_path, lacking, world_size=2)
    assert [one.steps_done for one in seen] == [3, 3]
    assert distance(seen[0].weights, seen[1].weights) == 0
    for one, other in zip(seen[0].gradients, seen[1].gradients, strict=True):
        assert torch.equal(one["out.weight"], other["out.weight"])


@pytest.mark.contract(36)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("world_size", "rank", "only_last"), [(2, 1, True), (3, None, False)])
def test_a_step_that_ran_out_of_memory_is_repeated(
    pool: Pool, tmp_path: Path, place: str, world_size: int, rank: int | None, only_last: bool
) -> None:
    options = OPTIONS | {"batch": {"size": 24, "micro_size": 6}, "steps": 3} | section("manual")
    short = partial(shortage, place, rank=rank, samples=2, after=2, only_last=only_last)
    disturbed = pool.run(
        cases.train, Toy(items=60), options, tmp_path / "short", short, world_size=world_size
    )
    plain = pool.run(cases.train, Toy(items=60), options, tmp_path / "plain", world_size=world_size)
    assert len(events(tmp_path / "short", "plan")) > 1
    check_equal(disturbed, plain)


def test_each_number_format_has_one_message(pool: Pool, tmp_path: Path) -> None:
    mixed = pool.run(strategy_cases.messages_of_a_step, world_size=2)
    assert mixed == [["torch.float32", "torch.float64"]] * 2
