"""Table of results, one row per item and one column per engine, as text and as JSON.

A cell has the verdict and the measured number. Explanations, such as the reason why an engine does
not support an item, are notes under the table.

Not here: the checks (``benchmarks.conformance.checks``).
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from benchmarks.conformance.checks import CheckResult, Item
from benchmarks.conformance.engines.base import Engine
from benchmarks.conformance.gang import DeadRankError, HangError, RankPool
from benchmarks.conformance.runs import BrokenRunError, Runs, UnsupportedCaseError

_WORDS = {"pass": "pass", "fail": "FAIL", "n/a": "n/a", "hang": "HANG"}


def findings(
    engine: Engine, gang: RankPool, world_sizes: tuple[int, ...], items: list[Item]
) -> list[CheckResult]:
    """Return the results of all checks on one engine, in the order of the items."""
    runs = Runs(engine, gang, world_sizes)
    try:
        return [finding(each, runs) for each in items]
    finally:
        runs.close()


def finding(each: Item, runs: Runs) -> CheckResult:
    """Run one check. Its errors are results, too."""
    try:
        return each.check(runs)
    except UnsupportedCaseError as why:
        return CheckResult("n/a", "", str(why))
    except HangError as why:
        return CheckResult("hang", "", str(why))
    except (BrokenRunError, DeadRankError) as why:
        return CheckResult("fail", "error", str(why))


def text(columns: dict[str, list[CheckResult]], items: list[Item]) -> str:
    """Return the table and its notes as text."""
    head = ["", "", *columns]
    body = [
        [each.number, each.title, *(cell(column[index]) for column in columns.values())]
        for index, each in enumerate(items)
    ]
    widths = [max(len(line[place]) for line in [head, *body]) for place in range(len(head))]
    lines = [
        "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
        for line in [head, *body]
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    notes = [
        f"  {each.number} {name}: {column[index].note}"
        for index, each in enumerate(items)
        for name, column in columns.items()
        if column[index].note
    ]
    return "\n".join(lines + (["", *notes] if notes else []))


def cell(found: CheckResult) -> str:
    return f"{_WORDS[found.verdict]} {found.measured}".strip()


def document(columns: dict[str, list[CheckResult]], items: list[Item]) -> dict[str, Any]:
    """Return the table as JSON: engine → one object per item.

    A value that is not finite is None; its text is kept.
    """
    return {
        name: [
            {
                "item": each.number,
                "title": each.title,
                **asdict(found),
                "value": finite(found.value),
            }
            for each, found in zip(items, column, strict=True)
        ]
        for name, column in columns.items()
    }


def finite(value: float | None) -> float | None:
    """Return a value, or None if JSON cannot represent it."""
    return value if value is not None and math.isfinite(value) else None
