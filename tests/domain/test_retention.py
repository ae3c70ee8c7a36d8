"""Selection of the checkpoints that are kept."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.domain.life.retention import best_of, superseded

Saved = tuple[int, float | None]


def value(saved: Saved) -> float | None:
    return saved[1]


def steps(values: list[float | None]) -> list[Saved]:
    """Return steps 1, 2, … with these values, newest first."""
    return list(reversed(list(enumerate(values, start=1))))


@pytest.mark.parametrize(
    ("values", "best"),
    [
        ([3.0, 1.0, 2.0], 2),
        ([1.0, 1.0, 1.0], 1),
        ([0.0, -0.0], 1),
        ([math.nan, 5.0, math.nan], 2),
        ([None, 5.0, 4.0, None], 3),
        ([-math.inf, 7.0, math.inf], 2),
        ([math.nan, math.inf, None], None),
        ([], None),
    ],
)
def test_the_best_is_the_lowest_finite_value_and_the_earliest_of_equals(
    values: list[float | None], best: int | None
) -> None:
    found = best_of(steps(values), value)
    assert (None if found is None else found[0]) == best


def test_the_best_outlives_newer_ones_and_the_one_before_it_goes() -> None:
    assert superseded(steps([2.0, 1.0, 3.0, 4.0, 5.0]), 2, value) == [(3, 3.0), (1, 2.0)]


@given(values=st.lists(st.none() | st.floats()), keep_last=st.integers(1, 5))
def test_the_newest_and_at_most_one_more_are_kept(
    values: list[float | None], keep_last: int
) -> None:
    saved = steps(values)
    dropped = superseded(saved, keep_last, value)
    assert all(each not in dropped for each in saved[:keep_last])
    assert max(0, len(saved) - keep_last - 1) <= len(dropped) <= max(0, len(saved) - keep_last)
    best = best_of(saved, value)
    assert best is None or best not in dropped
