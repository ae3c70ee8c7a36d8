"""Gradients under ``ddp`` and ``zero1`` are views of the buckets that the ranks reduce, unless a
spec selects copies.

Not here: equal training with both (``tests.engine.strategies.test_strategies``), and their memory
(``tests.engine.memory.test_forecast``).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.domain.spec.train import Train
from tests.engine.strategies.bucket_cases import where_gradients_lie
from tests.harness.ranks import Pool


def settings(micro: int, **strategy: object) -> dict[str, object]:
    return {
        "batch": {"size": 12, "micro_size": micro},
        "optimizer": {"name": "sgd"},
        "steps": 4,
        "strategy": strategy,
    }


@pytest.mark.parametrize("name", ["ddp", "zero1"])
@pytest.mark.parametrize("micro", [6, 2], ids=["one micro-batch", "three micro-batches"])
def test_gradients_lie_in_the_buckets(pool: Pool, tmp_path: Path, micro: int, name: str) -> None:
    for found, left_over in pool.run(
        where_gradients_lie, settings(micro, name=name), tmp_path, world_size=2
    ):
        steps = [step for step in found if step.count > 1]
        assert steps
        assert all(len(step.storages) == 1 for step in steps), "the gradients are not in one bucket"
        assert len({step.storages for step in steps}) == 1, "the bucket moved between steps"
        assert left_over == []


@pytest.mark.parametrize("micro", [6, 2], ids=["one micro-batch", "three micro-batches"])
def test_a_spec_selects_copies(pool: Pool, tmp_path: Path, micro: int) -> None:
    wanted = settings(micro, name="ddp", gradient_as_bucket_view=False)
    for steps, _ in pool.run(where_gradients_lie, wanted, tmp_path, world_size=2):
        assert steps
        assert all(len(step.storages) == step.count > 1 for step in steps)


@pytest.mark.parametrize(
    ("strategy", "held"),
    [
        ({}, True),
        ({"name": "zero1"}, True),
        ({"gradient_as_bucket_view": True}, True),
        ({"gradient_as_bucket_view": False}, False),
        ({"name": "manual"}, False),
        ({"name": "fsdp", "gradient_as_bucket_view": False}, False),
    ],
)
def test_buckets_hold_gradients_by_strategy(strategy: dict[str, object], held: bool) -> None:
    train = Train.model_validate(
        {"task": "causal_lm", "batch": {"size": 4}, "steps": 1, "strategy": strategy}
    )
    assert train.strategy.buckets_hold_gradients is held
