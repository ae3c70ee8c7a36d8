"""The table of faults: its content, and the failure of a drill that proves nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness import drills as record

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
    drill.begin("F5", "each answer is slow", recovery=5.0)
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


def test_a_run_prints_every_row_and_refuses_those_that_prove_nothing(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(record.RECORD, raising=False)
    pytester.makepyfile(DRILLS)
    pytester.makeini("[pytest]\nmarkers =\n    drill: long")
    result = pytester.runpytest_inprocess("-p", "tests.harness.drills", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=5, skipped=1, errors=3)
    result.stdout.fnmatch_lines(
        [
            "F2 *something dies * 2 * 0.50, 0.75 / 5 * - * 0 * 0 * 0 * passed * 7",
            "F3 *nothing * 0 * error",
            "F4 *a point is lost * 1 * 1 * 0 * 0 * error",
            "F5 *each answer is slow * 1 * 12.00, 12.00 / 150 * passed",
            "F10 *something dies slowly * 1 * 5.50, 5.50 / 5 * error",
            "F15 *a partition * 0 * NOT RUN",
        ]
    )


def test_a_run_merges_its_rows_into_the_record(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = pytester.path / "drills.json"
    kept.write_text(
        json.dumps(
            {
                "test_drills.py::test_not_here": {"fault": "F15", "verdict": "passed"},
                "test_drills.py::test_good": {"fault": "F2", "verdict": "failed"},
                "test_other.py::test_other": {"fault": "F1", "verdict": "passed"},
            }
        )
    )
    monkeypatch.setenv(record.RECORD, str(kept))
    pytester.makepyfile(test_drills=DRILLS)
    pytester.makeini("[pytest]\nmarkers =\n    drill: long")
    pytester.runpytest_inprocess("-p", "tests.harness.drills", "-p", "no:cacheprovider")
    rows = json.loads(kept.read_text())
    assert [row["fault"] for row in rows.values()] == ["F1", "F2", "F3", "F4", "F5", "F10", "F15"]
    good = rows["test_drills.py::test_good"]
    assert good["noticed"] == {"median": 0.5, "worst": 0.75, "limit": 5.0}
    assert (good["verdict"], good["injected"], good["recovered"], good["lost"]) == (
        "passed",
        2,
        None,
        0,
    )
    assert rows["test_drills.py::test_lost"]["verdict"] == "error"
    # Measured on a machine where it could run. A run without it does not remove that.
    assert rows["test_drills.py::test_not_here"] == {"fault": "F15", "verdict": "passed"}


def test_the_page_shows_measurements_and_names_missing_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {
        "fault": "F10/11",
        "what": "sent three times",
        "detections": [0.25, 0.75],
        "detection_limit": 5.0,
        "recoveries": [],
        "recovery_limit": None,
        "injected": 1_000,
        "lost": 0,
        "doubled": 0,
        "orphans": 0,
        "seed": 1,
    }
    here = "tests/faults/test_table.py::"
    rows = {
        here + "test_the_page_shows_measurements_and_names_missing_ones[a]": row,
        here + "test_that_is_gone": {**row, "fault": "F1"},
        here + "test_a_run_merges_its_rows_into_the_record": {**row, "fault": "F9"},
        here + "test_every_fault_of_the_page_has_its_own_words": {**row, "fault": "F3"},
    }
    verdicts = dict(zip(rows, ("passed", "passed", "NOT RUN", "failed"), strict=True))
    monkeypatch.setattr(record, "MEASURED", tmp_path / "drills.json")
    record.merge(record.MEASURED, rows, verdicts, today="2026-11-21")
    lines = {
        line.split(" ")[1]: line.split(" | ")
        for line in record.table().splitlines()
        if line.startswith("| F")
    }
    assert lines.keys() == {f"F{number}" for number in record.FAULTS}
    shown = ["sent three times", "1,000", "0.50, 0.75 / 5", "", "0", "0", "0", "2026-11-21 |"]
    assert lines["F10"][2:] == lines["F11"][2:] == shown
    assert lines["F1"][2].startswith("NOT RUN YET")
    assert lines["F9"][2] == "sent three times: NOT RUN"
    assert lines["F3"][2] == "**FAILED:** sent three times"


def test_every_fault_of_the_page_has_its_own_words() -> None:
    assert len({what for what, _ in record.FAULTS.values()}) == len(record.FAULTS)
