"""The table, and the same as JSON.

Not here: how the figures were compared (``compare``).
"""

from __future__ import annotations

import os
import platform
from typing import Any

from benchmarks.service.compare import Line, Sample

HEAD = (
    f"{'row':>3}  {'what':52} {'database':10} {'ours':>10} {'peer':>14} {'theirs':>10} "
    f"{'ratio':>8}  {'target':14} met"
)


def printed(line: Line) -> str:
    """One line of the table."""
    met = {None: "", True: "yes", False: "NO"}[line.met]
    ratio = "" if line.ratio is None else f"{line.ratio:.3g}×"
    targets = ", ".join(target.words() for target in line.targets)
    what = f"{line.what}, {line.unit}" if line.unit else line.what
    cells = (
        f"{line.row:>3}  {what:52} {line.database or '':10} {_number(line.ours):>10} "
        f"{line.peer or '':>14} "
        f"{_number(line.theirs):>10} {ratio:>8}  {targets:14} {met}"
    )
    return f"{cells} {line.note}".rstrip()


def as_json(line: Line) -> dict[str, Any]:
    """The line's figures."""
    return {
        "row": line.row,
        "what": line.what,
        "unit": line.unit,
        "database": line.database,
        "ours": line.ours,
        "peer": line.peer,
        "theirs": line.theirs,
        "ratio": line.ratio,
        "targets": [target.words() for target in line.targets],
        "met": line.met,
        "note": line.note,
    }


def rounds_as_json(
    row: str, found: dict[tuple[str, str | None], list[Sample]]
) -> list[dict[str, Any]]:
    """Every round of every contestant, also figures that have no line."""
    return [
        {"row": row, "contestant": name, "database": database, "rounds": samples}
        for (name, database), samples in found.items()
    ]


def machine() -> dict[str, Any]:
    """What it was measured on."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"
