"""Table of the results, as text and as JSON.

Not here: the comparison of the figures (``compare``).
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
    """Return one line of the table."""
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
    """Return the line's figures."""
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
    """Return every round of every contestant, also figures without a line."""
    return [
        {"row": row, "contestant": name, "database": database, "rounds": samples}
        for (name, database), samples in found.items()
    ]


def machine() -> dict[str, Any]:
    """Return the description of the machine."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"
