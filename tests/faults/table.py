"""Observations of a drill about one fault, and the table of all drills at the end of a run.

A drill takes the fixture ``drill``, names its fault and limits, and records counts and times::

    drill.begin("F1", "SIGKILL one rank", seed=SEED, detection=5.0, recovery=15.0)
    ...
    drill.injected += 1
    drill.detections.append(seconds)

The limits are checked after the test, so that the numbers of a drill that fails are in the table
too. A drill that cannot run here gives its reason with ``pytest.skip("NOT RUN: …")`` after it
began, and also has a row.

Not here: the faults and checks (the ``test_*`` beside this), and the file with the rows
(``tests.faults.record``).
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

import pytest

from tests.faults import record

_ROW: Final = "drill"
_PASSED: Final[pytest.StashKey[bool]] = pytest.StashKey()
CROWDED: Final = 30.0
"""Factor on all limits in an ordinary run, in which other tests and programs use the same cores.

A long form runs alone. The shortest limit, 2 s, is then a minute: it fails if a program waits for a
lease that is not scaled, or forever.
"""
_COLUMNS: Final = "{:5} {:44.44} {:>6} {:>20} {:>20} {:>5} {:>8} {:>8}  {:10} {}"


@dataclass
class Drill:
    """One fault, injected any number of times."""

    fault: str = ""
    what: str = ""
    seed: int | None = None
    detection_limit: float | None = None
    """Seconds from the fault until its detection, at most."""
    recovery_limit: float | None = None
    """Seconds from the fault until the affected work continues, at most."""
    injected: int = 0
    detections: list[float] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)
    lost: int = 0
    """Jobs, points, lines or checkpoints that were accepted and are missing."""
    doubled: int = 0
    orphans: int = 0
    """Processes that outlived their job or program."""
    patience: float = 1.0
    """Factor on the limits."""

    def begin(
        self,
        fault: str,
        what: str,
        *,
        seed: int | None = None,
        detection: float | None = None,
        recovery: float | None = None,
    ) -> random.Random:
        """Name the fault and its limits; return the random generator of the drill."""
        self.fault, self.what, self.seed = fault, what, seed
        self.detection_limit = None if detection is None else detection * self.patience
        self.recovery_limit = None if recovery is None else recovery * self.patience
        return random.Random(seed)

    def check(self) -> None:
        """Check that the fault was injected, and that no limit was exceeded."""
        assert self.injected > 0, f"{self.fault}: the fault was never injected"
        for name, seen, limit in (
            ("noticed", self.detections, self.detection_limit),
            ("recovered", self.recoveries, self.recovery_limit),
        ):
            if limit is not None:
                assert seen, f"{self.fault}: has a limit for {name}, and measured nothing"
                assert max(seen) <= limit, (
                    f"{self.fault}: {name} after {max(seen):.2f} s, allowed are {limit} s"
                )
        found = {"lost": self.lost, "doubled": self.doubled, "orphans": self.orphans}
        assert not any(found.values()), f"{self.fault}: {found}"


@pytest.fixture
def drill(request: pytest.FixtureRequest) -> Iterator[Drill]:
    """Yield the row of this test in the table."""
    long = request.node.get_closest_marker("drill") is not None
    noted = Drill(patience=1.0 if long else CROWDED)
    request.node.stash[_PASSED] = False
    yield noted
    request.node.user_properties.append(
        (_ROW, asdict(noted))
    )  # Its reports carry this to the process that prints.
    if request.node.stash[_PASSED]:
        noted.check()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the long forms beside this for ``make drill``.

    It runs no long forms of other tests.
    """
    for item in items:
        if item.get_closest_marker("drill") is not None and item.path.is_relative_to(record.HERE):
            item.add_marker("row")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    """Record the tests that passed.

    A test that failed or was skipped need not have injected its fault.
    """
    report: pytest.TestReport = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, if any drill ran."""
    rows: dict[str, dict[str, Any]] = {}
    verdicts: dict[str, str] = {}
    for category in ("passed", "skipped", "failed", "error"):
        for report in terminalreporter.stats.get(category, []):
            verdicts[report.nodeid] = record.NOT_RUN if category == "skipped" else category
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, row in getattr(report, "user_properties", ()):
                if name == _ROW and row["fault"]:
                    rows[report.nodeid] = row
    if not rows:
        return
    if file := os.environ.get(record.RECORD):
        record.merge(Path(file), rows, verdicts, today=f"{datetime.now(UTC):%Y-%m-%d}")
    terminalreporter.section("faults")
    terminalreporter.line(
        _COLUMNS.format(
            "fault",
            "what",
            "times",
            "noticed",
            "recovered",
            "lost",
            "doubled",
            "orphans",
            "",
            "seed",
        )
    )
    for test, row in sorted(
        rows.items(), key=lambda one: (int(one[1]["fault"][1:].split("/")[0]), one[0])
    ):
        terminalreporter.line(
            _COLUMNS.format(
                row["fault"],
                row["what"],
                row["injected"],
                _times(row["detections"], row["detection_limit"]),
                _times(row["recoveries"], row["recovery_limit"]),
                row["lost"],
                row["doubled"],
                row["orphans"],
                verdicts.get(test, "?"),
                "" if row["seed"] is None else row["seed"],
            ).rstrip()
        )
    terminalreporter.line("noticed and recovered: median, worst / limit, in seconds")


def _times(seen: list[float], limit: float | None) -> str:
    if not seen:
        return "-"
    return f"{median(seen):.2f}, {max(seen):.2f}" + (f" / {limit:g}" if limit is not None else "")
