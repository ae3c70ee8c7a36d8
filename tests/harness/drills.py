"""Faults that Lockstep must survive, the observations of a drill about one, and their table.

A drill takes the fixture ``drill``, names its fault and limits, and records counts and times::

    drill.begin("F1", "SIGKILL one rank", seed=SEED, detection=5.0, recovery=15.0)
    ...
    drill.injected += 1
    drill.detections.append(seconds)

The limits are checked after the test, so that the numbers of a drill that fails are in the table
too. A drill that cannot run here gives its reason with ``pytest.skip("NOT RUN: …")`` after it
began, and also has a row.

A run with ``LOCKSTEP_RECORD_DRILLS`` naming a file merges its rows into it, by test; ``make drill``
does so with ``docs/drills.json``, and ``docs/generate.py`` draws the table of
``docs/reliability.md`` from it. A fault without a row is listed as such: an entry here is not a
passed test.

Not here: the drills (most are in ``tests/faults``).
"""

from __future__ import annotations

import ast
import fcntl
import json
import os
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
MEASURED: Final = ROOT / "docs/drills.json"
RECORD: Final = "LOCKSTEP_RECORD_DRILLS"
"""Environment variable: the file into which a run's rows are merged."""
NOT_RUN: Final = "NOT RUN"
Row = dict[str, Any]

FAULTS: Final[dict[int, tuple[str, str]]] = {
    1: (
        "SIGKILL one rank in the middle of a step",
        "the gang is down, the job goes on, its weights are as undisturbed",
    ),
    2: ("SIGKILL the launcher of the ranks", "its ranks are gone; a new attempt"),
    3: ("SIGKILL the node agent", "training is not disturbed, and a restarted agent adopts it"),
    4: (
        "a whole node is gone",
        "its jobs are placed elsewhere, and the old attempt can write nothing",
    ),
    5: (
        "SIGKILL the api between commit and answer; submits repeated",
        "one job for each, not one more or less",
    ),
    6: ("SIGKILL the api between commit and notification", "the job starts, once"),
    7: (
        "the broker is killed and started again, over and over",
        "notifications are heard again; running jobs are not touched",
    ),
    8: ("the broker is flushed with jobs queued", "every job starts, none twice"),
    9: ("the broker is frozen", "submits are answered as quickly as ever"),
    10: ("each message is delivered three times, in any order", "one attempt"),
    11: ("messages are replayed for jobs that have ended", "nothing leaves a terminal state"),
    12: (
        "PostgreSQL is restarted, or away for 30 s",
        "no job is lost or started again; 503 and Retry-After, never 500",
    ),
    13: (
        "the database is away for longer than a lease",
        "agents stop their ranks; then one new attempt each",
    ),
    14: ("a commit happened and its caller got an error", "no job and no event twice"),
    15: (
        "a node is cut off for two leases, then healed",
        "the old side stops before the new one starts",
    ),
    16: (
        "agent, launcher and ranks stand still beyond the lease",
        "their first write is refused; they exit",
    ),
    17: ("a node's clock is an hour off", "nothing: lease times are the database's"),
    18: (
        "a node's disk is full",
        "the checkpoint before is whole, and the attempt is tried elsewhere",
    ),
    19: ("the database's disk is full", "submits are refused with 507; nothing accepted is lost"),
    20: ("a checkpoint is torn, or a bit in it flips", "it is found, and the one before is used"),
    21: (
        "a rank is five times slower than the others",
        "it is reported as a straggler, and never killed",
    ),
    22: ("a collective never completes", "the rank is named, with stacks; the job is tried again"),
    23: (
        "user code ignores SIGTERM and double-forks",
        "nothing of it is left before its device is given away",
    ),
    24: ("a cancel at any moment around the end", "one end"),
    25: (
        "three schedulers, and the leader is killed again and again",
        "nothing is placed twice; another one leads",
    ),
    26: ("the first heartbeat never comes", "the attempt expires like any other"),
    27: ("old and new version side by side, and a migration", "no job is affected"),
    28: ("one job floods its metrics", "it alone is limited, and told so"),
    29: ("one job floods its log", "it alone is limited, and told so"),
    30: ("SQLite, SIGKILL in the middle of writes", "it opens clean, and holds every accepted job"),
    31: (
        "a backup is restored the ordinary way, or in place, while jobs run",
        "an incomplete database is recognised; no job is lost, killed or started again",
    ),
    33: ("the api refuses, resets and answers 503", "the client repeats what is safe, and says so"),
    34: (
        "a backup is restored in place of the database while jobs run",
        "running jobs are whole again from their spools and from the store; none fails for storage",
    ),
    35: (
        "a job puts hostile files at every name that the service reads",
        "its attempt ends and its devices are free within the grace and 10 s; no other job notices",
    ),
    36: (
        "an unchanged script loses a rank, and then its whole node",
        "the next attempt finds its files, and no step is missing or logged twice",
    ),
}
"""By number: the fault, and the required result. The numbers are names and never change."""


def numbers(fault: str) -> list[int]:
    """Return the faults of a row: ``F10/11`` is about two."""
    return [int(number) for number in re.findall(r"\d+", fault)]


def merge(file: Path, rows: Mapping[str, Row], verdicts: Mapping[str, str], *, today: str) -> None:
    """Write a run's rows into the file, in place of earlier rows of the same tests.

    A drill that could not run here does not remove an earlier measurement.

    Parameters
    ----------
    file : Path
        Created if it is missing.
    rows, verdicts : mapping
        By test: observations of a drill, and ``passed``, ``failed``, ``error`` or ``NOT RUN``.
    today : str
        As ``2026-11-21``.
    """
    with file.open("a+", encoding="utf-8") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)  # two runs may end at the same moment
        opened.seek(0)
        kept = _merged(json.loads(opened.read() or "{}"), rows, verdicts, today)
        opened.truncate(0)
        opened.write(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def _merged(
    kept: dict[str, Row], rows: Mapping[str, Row], verdicts: Mapping[str, str], today: str
) -> dict[str, Row]:
    for test, row in rows.items():
        verdict = verdicts.get(test, "error")
        if verdict == NOT_RUN and kept.get(test, {}).get("verdict", NOT_RUN) != NOT_RUN:
            continue
        kept[test] = {
            "fault": row["fault"],
            "what": row["what"],
            "verdict": verdict,
            "measured": today,
            "seed": row["seed"],
            "injected": row["injected"],
            "noticed": _summary(row["detections"], row["detection_limit"]),
            "recovered": _summary(row["recoveries"], row["recovery_limit"]),
            "lost": row["lost"],
            "doubled": row["doubled"],
            "orphans": row["orphans"],
        }
    return dict(sorted(kept.items(), key=lambda one: (numbers(one[1]["fault"]), one[0])))


def _summary(seen: list[float], limit: float | None) -> dict[str, float | None] | None:
    if not seen:
        return None
    return {"median": round(median(seen), 2), "worst": round(max(seen), 2), "limit": limit}


def table() -> str:
    """Return the measurements as Markdown: a line for each drill of each fault."""
    rows = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.is_file() else {}
    by_fault: dict[int, list[Row]] = {}
    for test, row in rows.items():
        if _exists(test):  # A drill that no longer exists has no result.
            for number in numbers(row["fault"]):
                by_fault.setdefault(number, []).append(row)
    lines = [
        "| fault | must happen | drill | times | noticed (s) | recovered (s) | lost | doubled | "
        "orphans | measured |",
        "| --- | --- | --- | ---: | --- | --- | ---: | ---: | ---: | --- |",
    ]
    for number, (what, must) in FAULTS.items():
        found = by_fault.get(number, [])
        head = f"| F{number} {what} | {must} |"
        if not found:
            lines.append(f"{head} NOT RUN YET | | | | | | | |")
        for row in found:
            lines.append(f"{head} {_cells(row)} |")
            head = "| | |"
    return "\n".join(lines)


def _cells(row: Row) -> str:
    what = row["what"].replace("|", "\\|")
    if row["verdict"] == NOT_RUN:
        return f"{what}: NOT RUN | | | | | | | {row['measured']}"
    failed = "" if row["verdict"] == "passed" else "**FAILED:** "
    counts = (row[name] for name in ("lost", "doubled", "orphans"))
    cells = (
        f"{failed}{what}",
        f"{row['injected']:,}",
        _times(row["noticed"]),
        _times(row["recovered"]),
        *map(str, counts),
        row["measured"],
    )
    return " | ".join(cells)


def _times(seen: dict[str, float | None] | None) -> str:
    if seen is None:
        return ""
    limit = "" if seen["limit"] is None else f" / {seen['limit']:g}"
    return f"{seen['median']:.2f}, {seen['worst']:.2f}{limit}"


def _exists(test: str) -> bool:
    """Return True if a test with this pytest id still exists."""
    file, _, name = test.partition("[")[0].partition("::")
    return name in _tests_in(ROOT / file)


@cache
def _tests_in(file: Path) -> frozenset[str]:
    if not file.is_file():
        return frozenset()
    found = ast.parse(file.read_text(encoding="utf-8")).body
    return frozenset(node.name for node in found if isinstance(node, ast.FunctionDef))


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
        assert FAULTS.keys() >= set(numbers(fault)), f"the table has no row for {fault}"
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


def long(*values: Any, seconds: float = 600.0) -> Any:
    """Return the parameters of the long form of a test, which ``-m drill`` runs."""
    return pytest.param(*values, id="long", marks=[pytest.mark.drill, pytest.mark.timeout(seconds)])


def fresh_seed() -> int:
    """Return another seed for each run; a drill prints it."""
    return random.SystemRandom().randrange(2**32)


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
        if item.get_closest_marker("drill") is not None and item.path.is_relative_to(
            ROOT / "tests/faults"
        ):
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
            verdicts[report.nodeid] = NOT_RUN if category == "skipped" else category
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, row in getattr(report, "user_properties", ()):
                if name == _ROW and row["fault"]:
                    rows[report.nodeid] = row
    if not rows:
        return
    if file := os.environ.get(RECORD):
        merge(Path(file), rows, verdicts, today=f"{datetime.now(UTC):%Y-%m-%d}")
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
                _printed_times(row["detections"], row["detection_limit"]),
                _printed_times(row["recoveries"], row["recovery_limit"]),
                row["lost"],
                row["doubled"],
                row["orphans"],
                verdicts.get(test, "?"),
                "" if row["seed"] is None else row["seed"],
            ).rstrip()
        )
    terminalreporter.line("noticed and recovered: median, worst / limit, in seconds")


def _printed_times(seen: list[float], limit: float | None) -> str:
    if not seen:
        return "-"
    return f"{median(seen):.2f}, {max(seen):.2f}" + (f" / {limit:g}" if limit is not None else "")
