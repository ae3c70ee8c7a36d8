"""What a drill saw of one fault, and the table that is printed of all of them at the end of a run.

A drill takes the fixture ``drill``, says which fault it injects and what is allowed, and counts and
times what happened::

    drill.begin("F1", "SIGKILL one rank", seed=SEED, detection=5.0, recovery=15.0)
    ...
    drill.injected += 1
    drill.detections.append(seconds)

What it was allowed is checked when the test is over, so that the numbers of a drill that fails are
in the table too. A drill that cannot run here says why with ``pytest.skip("NOT RUN: …")`` after it
began, and has its row all the same.

Not here: any fault (the ``test_*`` beside this), or what survives it; and where the rows are kept
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
"""Factor on all limits in an ordinary run, where other tests and programs share the cores; a long
form runs alone.

The shortest limit, 2 s, is a minute then: it fails where something waits for a lease that is not
scaled, or for ever.
"""
_COLUMNS: Final = "{:5} {:44.44} {:>6} {:>20} {:>20} {:>5} {:>8} {:>8}  {:10} {}"


@dataclass
class Drill:
    """One fault, injected any number of times."""

    fault: str = ""
    what: str = ""
    seed: int | None = None
    detection_limit: float | None = None
    """Seconds from the fault until it was noticed, at most."""
    recovery_limit: float | None = None
    """Seconds from the fault until what it broke went on, at most."""
    injected: int = 0
    detections: list[float] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)
    lost: int = 0
    """Jobs, points, lines or checkpoints that were accepted and are not there."""
    doubled: int = 0
    orphans: int = 0
    """Processes that outlived what they belong to."""
    patience: float = 1.0
    """What limits are multiplied by."""

    def begin(
        self,
        fault: str,
        what: str,
        *,
        seed: int | None = None,
        detection: float | None = None,
        recovery: float | None = None,
    ) -> random.Random:
        """Name the fault and its limits; returns the source of all its chance."""
        self.fault, self.what, self.seed = fault, what, seed
        self.detection_limit = None if detection is None else detection * self.patience
        self.recovery_limit = None if recovery is None else recovery * self.patience
        return random.Random(seed)

    def check(self) -> None:
        """That the fault was injected, and nothing happened that must not."""
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
    """The row of this test in the table."""
    long = request.node.get_closest_marker("drill") is not None
    noted = Drill(patience=1.0 if long else CROWDED)
    request.node.stash[_PASSED] = False
    yield noted
    request.node.user_properties.append(
        (_ROW, asdict(noted))
    )  # Its reports carry this to whoever prints.
    if request.node.stash[_PASSED]:
        noted.check()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long forms beside this are what ``make drill`` runs; those of other tests are not."""
    for item in items:
        if item.get_closest_marker("drill") is not None and item.path.is_relative_to(record.HERE):
            item.add_marker("row")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    """Note which tests passed: one that failed or was skipped need not have injected its fault."""
    report: pytest.TestReport = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, where any drill ran."""
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
