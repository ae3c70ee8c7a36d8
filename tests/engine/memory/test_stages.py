"""Memory of a pipeline: the forecast of each stage, and the choice of a micro-batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lockstep.domain.spec.batch import ceil_div
from lockstep.domain.spec.train import Train
from lockstep.domain.training.layout import RankLayout
from lockstep.domain.training.pipeline import bubble
from lockstep.domain.training.predicted import ForecastRequest
from lockstep.engine.memory.job_forecast import answer
from lockstep.engine.memory.largest_forecast import largest_forecast
from lockstep.engine.memory.sizes import OUT_OF_MEMORY, Trial, candidates, rehearsed, within_bubble
from lockstep.engine.runtime.ranks import Ranks
from tests.engine.memory.memory_cases import counted_on_rank, deep, predicted, train_of
from tests.engine.parallel import parallel_cases as cases
from tests.engine.parallel.test_pipeline import layout
from tests.engine.parallel.test_tensor import SETTINGS, observed
from tests.harness.ranks import Pool

TOLERANCE = 0.05


@pytest.mark.parametrize(
    ("of", "size", "settings"),
    [
        ((1, 1, 2), 8, {}),
        ((1, 1, 2), 24, {"activation_checkpointing": True, "precision": "bf16"}),
        ((1, 1, 4), 32, {"optimizer": {"name": "sgd", "momentum": 0.9}}),
        ((1, 1, 4), 40, {}),
        ((2, 1, 2), 48, {}),
        ((2, 1, 2), 32, {"strategy": {"gradient_as_bucket_view": False}}),
        ((2, 1, 2), 32, {"strategy": {"name": "fsdp"}}),
        ((1, 2, 2), 16, {}),
    ],
    ids=["one", "recomputed", "four", "many", "ddp", "buckets", "fsdp", "tensor"],
)
def test_the_forecast_of_a_stage_is_that_of_its_ranks(
    pool: Pool, of: tuple[int, int, int], size: int, settings: dict[str, Any]
) -> None:
    places = RankLayout(*of)
    train = train_of(size, parallel={"tensor": of[1], "pipeline": of[2]}, **settings)
    task, micro, world = deep(), 8, places.world_size
    measured = pool.run(counted_on_rank, "deep", train, micro, world_size=world)
    found = predicted(task, train, micro, world)
    assert found.peak == max(stage.peak for stage in found.stages)
    assert sum(stage.blocks for stage in found.stages) == 5
    for rank, peak in enumerate(measured):
        stage = found.stages[places.place(rank).stage]
        assert abs(stage.peak - peak) <= TOLERANCE * peak, (rank, stage.peak, measured)


# --- micro_size: auto


@pytest.mark.parametrize("shard", [1, 7, 12, 64, 100])
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_candidates_keep_the_bubble_within_a_fifth_if_any_does(shard: int, stages: int) -> None:
    sizes = candidates(shard)
    found = within_bubble(sizes, shard, stages)
    small = [size for size in sizes if bubble(ceil_div(shard, size), stages) <= 0.2 + 1e-9]
    assert found == (small or [1])


def test_the_largest_size_of_the_forecast_that_can_be_run_is_taken() -> None:
    tried = []

    def run(size: int) -> Any:
        tried.append(size)
        return Trial(0.0, 1.0) if size <= 2 else OUT_OF_MEMORY

    assert rehearsed(run, [1, 2, 4, 8, 16], 8, rehearses=True) == 2
    assert tried == [8, 4, 2]
    assert rehearsed(run, [1, 2, 4, 8, 16], 8, rehearses=False) == 8
    assert rehearsed(run, [1, 2, 4], 0, rehearses=True) is None


def largest_on_rank(ranks: Ranks, train: Train, limit_bytes: float) -> int:
    return largest_forecast(train, None, ranks, limit_bytes)


def test_ranks_agree_on_the_largest_size_by_the_forecast(pool: Pool) -> None:
    args = {"context": 32, "layers": 2, "heads": 2, "width": 64}
    train = train_of(8, parallel={"pipeline": 2}, task_args=args)
    request = ForecastRequest(train=train, world_size=2, available_bytes=2**40)
    largest = answer(request)
    assert (largest.micro_batch_size, largest.micro_batch_size_max) == (2, 2)
    assert largest.forecast is not None
    limit = largest.forecast.peak - 1
    assert pool.run(largest_on_rank, train, limit, world_size=2) == [1, 1]


@pytest.mark.parametrize("of", [(1, 1, 2), (1, 2, 2)])
def test_stages_choose_a_size_together(
    pool: Pool, tmp_path: Path, of: tuple[int, int, int]
) -> None:
    def run(name: str, micro: int | str, task: cases.SmallTask) -> list[list[list[int]]]:
        batch = {"batch": {"size": 16 // of[1], "micro_size": micro}, "steps": 2}
        settings = SETTINGS | layout(*of[1:]) | batch
        arguments = settings, tmp_path / name, None, task
        found: list[list[list[int]]] = pool.run(cases.train, *arguments, world_size=of[1] * of[2])
        return found

    seen = run("auto", "auto", cases.Deep())
    assert all(each == seen[0] for each in seen)
    size = max(map(len, seen[0]))
    assert size <= 4
    run("fixed", size, cases.Deep())
    chosen, fixed = (observed(tmp_path / name) for name in ("auto", "fixed"))
    assert (chosen.losses, chosen.norms) == (fixed.losses, fixed.norms)
    if of[1] == 1:
        assert max(map(len, run("tight", "auto", cases.Tight())[0])) <= 2
