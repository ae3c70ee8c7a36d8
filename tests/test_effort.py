"""A loop, a comprehension and an array each show in the effort of a call."""

from __future__ import annotations

import numpy as np

from tests.effort import effort_of


def _loop(turns: int) -> int:
    total = 0
    for turn in range(turns):
        total += turn
    return total


def test_each_turn_of_a_loop_counts_the_same_every_time() -> None:
    assert effort_of(lambda: _loop(1000)).lines == effort_of(lambda: _loop(1000)).lines > 2000
    assert effort_of(lambda: _loop(10)).lines < 30


def test_a_comprehension_and_an_array_show_too() -> None:
    assert effort_of(lambda: [turn + 1 for turn in range(1000)]).lines > 1000
    assert effort_of(lambda: np.zeros(10**6, np.uint8)).peak_bytes >= 10**6
