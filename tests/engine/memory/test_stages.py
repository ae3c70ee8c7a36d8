"""Memory forecast of a pipeline: each stage is compared with the live tensors of its ranks."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.domain.training.layout import RankLayout
from tests.engine.memory.memory_cases import counted_on_rank, deep, predicted, train_of
from tests.harness.ranks import Pool

TOLERANCE = 0.05


@pytest.mark.parametrize(
    ("of", "size", "settings"),
    [
        ((1, 1, 2), 8, {}),
        ((1, 1, 2), 256, {"activation_checkpointing": True, "precision": "bf16"}),
        ((1, 1, 4), 32, {"optimizer": {"name": "sgd", "momentum": 0.9}}),
        ((1, 1, 4), 128, {}),
        ((2, 1, 2), 128, {}),
        ((2, 1, 2), 128, {"strategy": {"gradient_as_bucket_view": False}}),
        ((2, 1, 2), 128, {"strategy": {"name": "fsdp"}}),
        ((1, 2, 2), 64, {}),
    ],
    ids=["one", "recomputed", "four", "many", "ddp", "buckets", "fsdp", "tensor"],
)
def test_the_forecast_of_a_stage_is_that_of_its_ranks(
    pool: Pool, of: tuple[int, int, int], size: int, settings: dict[str, Any]
) -> None:
    layout = RankLayout(*of)
    train = train_of(size, parallel={"tensor": of[1], "pipeline": of[2]}, **settings)
    task, micro, world = deep(), 8, layout.world_size
    measured = pool.run(counted_on_rank, train, micro, world_size=world)
    found = predicted(task, train, micro, world)
    assert found.peak == max(stage.peak for stage in found.stages)
    assert sum(stage.blocks for stage in found.stages) == 5
    for rank, peak in enumerate(measured):
        stage = found.stages[layout.place(rank).stage]
        assert abs(stage.peak - peak) <= TOLERANCE * peak, (rank, stage.peak, measured)
