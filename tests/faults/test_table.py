"""The table of faults: what it shows, and that a drill which proves nothing fails."""

from __future__ import annotations

import pytest

DRILLS = """
import pytest

@pytest.mark.drill
def test_good(drill):
    chance = drill.begin("F2", "something dies", seed=7, detection=5.0)
    drill.injected += 2
    drill.detections += [0.25, 0.75]

@pytest.mark.drill
def test_late(drill):
    drill.begin("F10", "something dies slowly", recovery=5.0)
    drill.injected += 1
    drill.recoveries.append(5.5)

def test_nothing_injected(drill):
    drill.begin("F3", "nothing")

def test_in_a_crowd(drill):
    drill.begin("F5", "everybody is slow", recovery=5.0)
    drill.injected += 1
    drill.recoveries.append(12.0)

def test_lost(drill):
    drill.begin("F4", "a point is lost")
    drill.injected += 1
    drill.lost += 1

def test_not_here(drill):
    drill.begin("F15", "a partition")
    pytest.skip("NOT RUN: no PostgreSQL")
"""


def test_a_run_prints_every_row_and_refuses_those_that_prove_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(DRILLS)
    pytester.makeini("[pytest]\nmarkers =\n    drill: long")
    result = pytester.runpytest_inprocess("-p", "tests.faults.table", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=5, skipped=1, errors=3)
    result.stdout.fnmatch_lines(
        [
            "F2 *something dies * 2 * 0.50, 0.75 / 5 * - * 0 * 0 * 0 * passed * 7",
            "F3 *nothing * 0 * error",
            "F4 *a point is lost * 1 * 1 * 0 * 0 * error",
            "F5 *everybody is slow * 1 * 12.00, 12.00 / 20 * passed",
            "F10 *something dies slowly * 1 * 5.50, 5.50 / 5 * error",
            "F15 *a partition * 0 * NOT RUN",
        ]
    )
