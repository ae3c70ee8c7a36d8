"""From engines and items to the table: which cell holds what, as text and as JSON.

A cell says whether the item holds and the number that was measured. What the number alone does not
say, such as why an engine cannot be asked, is in the notes under the table.

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
    """What the checks find in one engine, in the order of the items."""
    runs = Runs(engine, gang, world_sizes)
    try:
        return [finding(each, runs) for each in items]
    finally:
        runs.close()


def finding(each: Item, runs: Runs) -> CheckResult:
    """What one check finds; what goes wrong on the way is a finding too."""
    try:
        return each.check(runs)
    except UnsupportedCaseError as why:
        return CheckResult("n/a", "", str(why))
    except HangError as why:
        return CheckResult("hang", "", str(why))
    except (BrokenRunError, DeadRankError) as why:
        return CheckResult("fail", "error", str(why))


def text(columns: dict[str, list[CheckResult]], items: list[Item]) -> str:
    """The table, and its notes."""
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
    """The table as JSON: engine → one object per item.

    A number that is none is given as text only.
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
    """JSON has no word for what is not a number."""
    return value if value is not None and math.isfinite(value) else None
