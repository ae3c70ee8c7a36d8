"""A gradient that did not reach the other ranks is found before the optimizer updates.

DDP of torch accepts such a step without an error, and the ranks diverge. The engine repeats the
step with the gradients reduced after the last backward, where a rank may lack some of them.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lockstep.engine.runtime.errors import EngineError
from tests.engine import cases
from tests.engine.lacking import unchecked, unused
from tests.engine.reference import distance
from tests.engine.toy import Toy
from tests.harness.ranks import Pool

pytestmark = pytest.mark.contract(11)

OPTIONS: dict[str, Any] = {
    "batch": {"size": 12, "micro_size": 2},
    "steps": 3,
    "optimizer": {"name": "sgd", "lr": 0.1},
    "strategy": {"bucket_cap_mb": 1e-3},
}
# Wide enough for several buckets: some are in flight already, and others are not.
TOY = Toy(width=200)


@pytest.mark.parametrize(
    ("parameter", "rank"), [("hidden.weight", 0), ("out.weight", 1), ("scale", None)]
)
def test_a_parameter_without_gradient_in_the_last_micro_batch_is_reduced(
    pool: Pool, tmp_path: Path, parameter: str, rank: int | None
) -> None:
    lacking = partial(unused, parameter, rank=rank, last=True)
    seen = pool.run(cases.train, TOY, OPTIONS, tmp_path / "ddp", lacking, world_size=2)
    options = OPTIONS | {"strategy": {"name": "manual"}}
    expected = pool.run(cases.train, TOY, options, tmp_path / "manual", lacking, world_size=2)
    for found, by_hand in zip(seen, expected, strict=True):
        assert distance(found.weights, by_hand.weights) <= 1e-12
        for here, there in zip(found.gradients, by_hand.gradients, strict=True):
            assert distance(here, there) <= 1e-12


def test_a_parameter_without_gradient_in_an_earlier_micro_batch_is_accepted(
    pool: Pool, tmp_path: Path
) -> None:
    lacking = partial(unused, "out.weight", rank=1, last=False)
    seen = pool.run(cases.train, TOY, OPTIONS, tmp_path, lacking, world_size=2)
    for name in seen[0].weights:
        assert (seen[0].weights[name] == seen[1].weights[name]).all()


def test_without_the_check_the_ranks_diverge(pool: Pool, tmp_path: Path) -> None:
    # Another check finds it before the checkpoint: after the step.
    with pytest.raises(
        EngineError, match="after step 2 the model is no longer the same on all ranks"
    ) as caught:
        pool.run(
            cases.train,
            TOY,
            OPTIONS | {"steps": 2},
            tmp_path,
            partial(unchecked, "out.weight"),
            world_size=2,
        )
    assert caught.value.reason == "diverged"
