"""A stage that runs out of memory repeats the step with the others, in smaller micro-batches."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lockstep.engine.data import order
from tests.engine.parallel import parallel_cases as cases
from tests.engine.parallel.small_lm import ITEMS, Masked, deep, reference
from tests.engine.parallel.test_pipeline import layout
from tests.engine.parallel.test_tensor import SETTINGS, check, observed
from tests.engine.spool import events
from tests.harness.ranks import Pool

SIZE, STEPS = 24, 4
ORDER = [i for _, i in order.samples(0, SIZE * STEPS, size=ITEMS, seed=3)]
BATCHES = [ORDER[step * SIZE : step * SIZE + SIZE] for step in range(STEPS)]
TWO = {
    "two a": [("forward", 0, 0), ("forward", 1, 3), ("activation", 1, 5)],
    "two b": [("backward", 1, 1), ("backward", 0, 3), ("gradient", 0, 5)],
    "two c": [("middle", 0, 0), ("middle", 1, 3), ("backward", 0, 5)],
    "two d": [("activation", 1, 1), ("gradient", 0, 3), ("middle", 1, 5)],
}
"""A stage of two fails at a place in three steps, each time in another micro-batch.

The first stage receives no activation, the last one no gradient.
"""
FOUR = {
    "four a": [("forward", 1, 1), ("middle", 2, 3), ("forward", 2, 5)],
    "four b": [("middle", 1, 1), ("forward", 2, 3), ("middle", 2, 5)],
}
"""The same in the middle of four."""


def points(of: list[tuple[str, int, int]]) -> list[Any]:
    """Return the points of a run. The first attempt of each step fails: numbers 1, 3 and 5. A copy
    has 2, 4 and at least 6 micro-batches then."""
    return [
        (call, stage, place, index)
        for call, (place, stage, index) in zip((1, 3, 5), of, strict=True)
    ]


@pytest.mark.contract(2, 26, 36)
@pytest.mark.parametrize(
    ("copies", "stages", "strategy", "points"),
    [
        *[pytest.param(2, 2, "ddp", points(each), id=name) for name, each in TWO.items()],
        *[pytest.param(1, 4, "ddp", points(each), id=name) for name, each in FOUR.items()],
        pytest.param(1, 4, "ddp", [(1, 2, "forward", 0), (1, 1, "backward", 1)], id="two at once"),
        pytest.param(2, 2, "manual", [(1, 0, "middle", 1), (3, 1, "forward", 0)], id="manual"),
    ],
)
def test_no_step_is_lost(
    pool: Pool, tmp_path: Path, copies: int, stages: int, strategy: str, points: list[Any]
) -> None:
    micro_size, blocks = SIZE // copies // 2, stages + 1
    settings = SETTINGS | layout(1, stages, strategy) | {"steps": STEPS}
    settings |= {"batch": {"size": SIZE, "micro_size": micro_size}}
    settings["strategy"] |= {"bucket_cap_mb": 1e-3} if strategy == "ddp" else {}
    # The failing rank is of the last copy.
    points = [(call, stage * copies + copies - 1, *more) for call, stage, *more in points]
    mutate = partial(cases.shortage_in_stage, points)
    task = cases.Deep(blocks=blocks)
    assert pool.run(cases.train, settings, tmp_path, mutate, task, world_size=copies * stages)
    model = partial(deep, Masked, blocks=blocks)
    check(observed(tmp_path), reference(settings, 3, BATCHES, model))
    messages = [event["message"] for event in events(tmp_path, "warning")]
    assert [message.partition(":")[0] for message in messages] == [
        f"step {(call + 1) // 2} ran out of memory"
        for call in sorted({point[0] for point in points})
    ]
