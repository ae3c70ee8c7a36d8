"""Division of the time that an assignment held its devices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.domain.life.held_time import AssignmentTimes, StepRange, held_time, repeated_part

MOMENTS = st.floats(1.7e9, 1.7e9 + 1e7)


@given(
    placed=MOMENTS,
    running=MOMENTS | st.none(),
    ended=MOMENTS,
    released=MOMENTS,
    devices=st.integers(1, 512),
    repeated=st.floats(0, 1),
)
def test_the_parts_add_up_and_none_is_negative(
    placed: float,
    running: float | None,
    ended: float,
    released: float,
    devices: int,
    repeated: float,
) -> None:
    use = held_time(AssignmentTimes(placed, running, ended, released), devices, repeated)
    assert min(use) >= 0
    assert sum(use) == pytest.approx(max(0.0, released - placed) * devices, rel=0, abs=1e-6)


def test_start_and_clearing_are_idle() -> None:
    use = held_time(AssignmentTimes(100.0, 110.0, 150.0, 153.0), 2, 0.25)
    assert use == (60.0, 20.0, 26.0)
    assert held_time(AssignmentTimes(100.0, None, 150.0, 153.0), 2) == (0.0, 0.0, 106.0)


@pytest.mark.parametrize(
    ("kind", "steps", "reached", "part"),
    [
        ("train", StepRange(51, 150), 70, 0.2),
        ("train", StepRange(71, 150), 70, 0.0),
        ("train", StepRange(51, 60), 70, 1.0),
        ("train", StepRange(1, 100), 30, 0.3),
        ("train", StepRange(1, 100), None, 0.0),
        ("train", None, 70, 0.0),
        ("script", StepRange(51, 150), 70, 0.2),
        ("script", StepRange(1, 100), 30, 0.0),
    ],
)
def test_steps_that_an_earlier_attempt_reached_are_repeated(
    kind: str, steps: StepRange | None, reached: int | None, part: float
) -> None:
    assert repeated_part(kind, steps, reached) == pytest.approx(part)
