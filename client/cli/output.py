"""How values are written for a person: tables, times, sizes, states.

Not here: which columns a command shows.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel

from domain.lifecycle import Intent
from domain.views import JobView

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

ID_CHARS: Final = 8
"""Of an id's end, where it is shown short. Ids begin with their time, so the end is what tells two apart."""
PIPE_WIDTH: Final = 100_000
"""Columns of what is not a terminal: nothing is cut or wrapped there."""
STYLES: Final = {
    "queued": "yellow",
    "starting": "cyan",
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "magenta",
    "ready": "green",
    "draining": "yellow",
    "quarantined": "red",
    "lost": "red",
}
_ESCAPES: Final = re.compile(
    r"\x1b\[[0-9;:?]*[@-ln-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[^\[\]]|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]"
)


def console(*, stderr: bool = False) -> Console:
    """A console that neither guesses at markup in other people's words nor cuts lines in a pipe."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=stream,
        width=None if stream.isatty() else PIPE_WIDTH,
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=not stream.isatty(),
    )


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, right: Iterable[str] = ()) -> None:
    """A table without lines around it, as other commands can read it too."""
    from rich.table import Table

    numbers = set(right)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    _print(table)


def print_facts(facts: Iterable[tuple[str, str | Text]]) -> None:
    """Names and values, one pair a line."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, value)
    _print(table)


def _print(table: Table) -> None:
    to = console()
    if to.is_terminal:
        to.print(table)
        return
    # In a pipe a column's padding is only noise at the end of its lines.
    with to.capture() as captured:
        to.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def print_json(value: BaseModel | Sequence[BaseModel]) -> None:
    """The API's own objects, as JSON."""
    plain = (
        value.model_dump(mode="json") if isinstance(value, BaseModel) else [v.model_dump(mode="json") for v in value]
    )
    print(json.dumps(plain, indent=2, ensure_ascii=False))


def styled(state: str) -> Text:
    from rich.text import Text

    return Text(state, style=STYLES.get(state.split(" ", maxsplit=1)[0], ""))


def state_of(job: JobView) -> str:
    """The job's state; a wish that has not happened yet is said too."""
    if job.intent is Intent.CANCEL and job.finished_at is None:
        return f"{job.state} (cancelling)"
    return job.state.value


def short_id(job_id: str) -> str:
    return job_id[-ID_CHARS:]


def duration(seconds: float | None) -> str:
    """A length of time in at most two units: ``4 s``, ``2 min 5 s``, ``3 h 20 min``, ``2 d 4 h``."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    if seconds < 9.95 and seconds != int(seconds):
        return f"{seconds:.1f} s"
    whole = round(max(0.0, seconds))
    for unit, size, smaller, smaller_size in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def age(moment: datetime | None, now: datetime) -> str:
    return "-" if moment is None else duration(max(0.0, (now - moment).total_seconds() // 1))


def size(count: int | None) -> str:
    if count is None:
        return "-"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def number(value: float | str | None) -> str:
    """A metric's value in four significant digits; non-finite ones by name."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.4g}"


def loss(value: float | str) -> str:
    """A loss in four decimals, or in three significant digits where those would all be zeros."""
    if isinstance(value, str):
        return value
    return f"{value:.4f}" if abs(value) >= 0.01 or value == 0 else f"{value:.3g}"


def took(job: JobView, now: datetime) -> float | None:
    """Seconds from the job's first start to its end, or to now."""
    if job.started_at is None:
        return None
    return ((job.finished_at or now) - job.started_at).total_seconds()


def harmless(text: str) -> str:
    """A job's line without what would move the cursor or change the terminal; colours stay."""
    return _ESCAPES.sub("", text)
