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
PLACES = ("activation", "forward", "backward", "middle", "gradient")


def shortages(stages: int) -> list[Any]:
    """Return runs in which a stage fails at a place in three steps, each time in another
    micro-batch; of four stages those in the middle.

    The first attempt of each step fails: numbers 1, 3 and 5. A copy has 2, 4 and at least 6
    micro-batches then.
    """
    found = []
    for stage in range(stages):
        for place in PLACES:
            arrives = (place, stage) not in (("activation", 0), ("gradient", stages - 1))
            inner = 0 < stage < stages - 1 and place in ("forward", "middle")
            if arrives if stages == 2 else inner:
                points = [(1, stage, place, stage % 2), (3, stage, place, 3), (5, stage, place, 5)]
                found.append(pytest.param(points, id=f"{place}-{stage}"))
    return found


@pytest.mark.contract(2, 26, 36)
@pytest.mark.parametrize(
    ("copies", "stages", "strategy", "points"),
    [
        *[pytest.param(2, 2, "ddp", *each.values, id=f"two-{each.id}") for each in shortages(2)],
        *[pytest.param(1, 4, "ddp", *each.values, id=f"four-{each.id}") for each in shortages(4)],
        pytest.param(1, 4, "ddp", [(1, 2, "forward", 0), (1, 1, "backward", 1)], id="two at once"),
        pytest.param(2, 2, "manual", [(1, 0, "middle", 1), (3, 1, "forward", 0)], id="manual"),
    ],
)
def test_no_step_is_lost(
    pool: Pool, tmp_path: Path, copies: int, stages: int, strategy: str, points: list[Any]
) -> None:
    micro_size = SIZE // copies // 2
    settings = SETTINGS | layout(1, stages, strategy) | {"steps": STEPS}
    settings |= {"batch": {"size": SIZE, "micro_size": micro_size}}
    settings["strategy"] |= {"bucket_cap_mb": 1e-3} if strategy == "ddp" else {}
    # The failing rank is of the last copy.
    points = [(call, stage * copies + copies - 1, *more) for call, stage, *more in points]
    mutate = partial(cases.shortage_in_stage, points)
    seen = pool.run(
        cases.train, settings, tmp_path, mutate, cases.Deep(), world_size=copies * stages
    )
    assert seen
    check(observed(tmp_path), reference(settings, 3, BATCHES, partial(deep, Masked)))
    messages = [event["message"] for event in events(tmp_path, "warning")]
    assert [message.partition(":")[0] for message in messages] == [
        f"step {(call + 1) // 2} ran out of memory"
        for call in sorted({point[0] for point in points})
    ]
