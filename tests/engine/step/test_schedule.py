"""The learning rate at the steps where a schedule is easily off by one."""

from __future__ import annotations

import pytest

from lockstep.domain.spec.job import Schedule
from lockstep.engine.step.schedule import learning_rate


def rates(steps: int, **schedule: object) -> list[float]:
    return [
        learning_rate(Schedule.model_validate(schedule), lr=1.0, step=step, steps=steps)
        for step in range(steps)
    ]


def test_the_warm_up_rises_evenly_to_the_peak() -> None:
    assert rates(6, name="constant", warmup_steps=4) == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])


def test_a_line_falls_to_its_minimum_at_the_last_step() -> None:
    assert rates(7, name="linear", warmup_steps=2, min_lr=0.2) == pytest.approx(
        [0.5, 1, 1, 0.8, 0.6, 0.4, 0.2]
    )


def test_a_cosine_reaches_its_minimum_at_the_last_step() -> None:
    found = rates(5, name="cosine", min_lr=0.1)
    assert found[0] == 1
    assert found[2] == pytest.approx(0.55)
    assert found[4] == pytest.approx(0.1)
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("name", ["constant", "linear", "cosine"])
@pytest.mark.parametrize(("steps", "warmup_steps"), [(1, 0), (1, 1), (2, 1), (3, 10)])
def test_a_run_shorter_than_its_schedule_never_exceeds_the_peak(
    name: str, steps: int, warmup_steps: int
) -> None:
    assert all(0 <= rate <= 1 for rate in rates(steps, name=name, warmup_steps=warmup_steps))
