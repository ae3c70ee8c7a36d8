"""Formatting of values for users: tables, times, sizes, states.

A terminal gets tables from rich, cut to its width and in colour; a pipe gets plain lines from here,
without loading rich.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from lockstep.domain.life.lifecycle import Intent
from lockstep.domain.training.metrics import jsonable

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from lockstep.domain.queue_views import QueuePlace, TimeLimit
    from lockstep.domain.views import JobView

ID_CHARS: Final = 8
"""Characters of a short id, from its end. Ids begin with their time, so their ends differ."""
PIPE_WIDTH: Final = 100_000
"""Width for output that is no terminal: nothing is cut or wrapped."""
STYLES: Final = {
    "queued": "yellow",
    "paused": "blue",
    "starting": "cyan",
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "magenta",
    "ready": "green",
    "draining": "yellow",
    "quarantined": "red",
    "leaving": "yellow",
    "lost": "red",
}
_ESCAPES: Final = re.compile(
    r"\x1b\[[0-9;:?]*[@-ln-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[^\[\]]|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]"
)
_COLOURS: Final = re.compile(r"\x1b\[[0-9;:]*m")


class Word(str):
    """A text with the style that a terminal shows it in."""

    __slots__ = ("style",)
    style: str

    def __new__(cls, text: str, style: str) -> Word:
        word = super().__new__(cls, text)
        word.style = style
        return word


def console(*, stderr: bool = False) -> Console:
    """Console without markup in values, and without cut lines in a pipe."""
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


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[str] = ()
) -> None:
    """A table without lines around it, as other commands can read it too."""
    numbers = set(right)
    if not is_terminal():
        _print_plain([columns, *rows], [column in numbers for column in columns])
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    _fill(table, rows)
    console().print(table)


def print_facts(facts: Iterable[Sequence[str]]) -> None:
    """Names and values, one pair a line; more columns than two stand between them."""
    rows = list(facts)
    columns = max(map(len, rows), default=2)
    if not is_terminal():
        _print_plain(rows, [False] * columns)
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for _ in range(columns - 1):
        table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    _fill(table, rows)
    console().print(table)


def is_terminal() -> bool:
    """Return whether stdout is a terminal, or treated as one (``FORCE_COLOR``, as in rich)."""
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


def _fill(table: Table, rows: Iterable[Sequence[str]]) -> None:
    from rich.text import Text

    for row in rows:
        table.add_row(
            *(Text(cell, style=cell.style) if isinstance(cell, Word) else cell for cell in row)
        )


def print_line(words: Iterable[Word]) -> None:
    """Words on one line, in their styles on a terminal."""
    if is_terminal():
        console().print(as_text([words]), soft_wrap=True)
    else:
        print("".join(words).rstrip())


def as_text(lines: Iterable[Iterable[Word]]) -> Text:
    """Lines of words as rich shows them."""
    from rich.text import Text

    return Text("\n").join(
        Text.assemble(*((str(word), word.style) for word in line), no_wrap=True, overflow="crop")
        for line in lines
    )


def can_write(text: str) -> bool:
    """Return whether stdout's encoding has these letters."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def aligned(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> Iterator[list[Word]]:
    """Rows in columns, two spaces apart.

    A cell may have several lines, and the last one of a line is not filled up.
    """
    cells = [[cell.expandtabs().splitlines() or [""] for cell in row] for row in rows]
    widths = [
        max(columns_of(line) for cell in column for line in cell)
        for column in zip(*cells, strict=True)
    ]
    for row, texts in zip(rows, cells, strict=True):
        for number in range(max(map(len, texts))):
            words = []
            for cell, lines, width, to_right in zip(row, texts, widths, right, strict=True):
                line = lines[number] if number < len(lines) else ""
                gap = " " * (width - columns_of(line))
                filled = gap + line if to_right else line + gap
                words.append(Word(filled + "  ", cell.style if isinstance(cell, Word) else ""))
            words[-1] = Word(words[-1].rstrip(), words[-1].style)
            yield words


def _print_plain(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> None:
    for words in aligned(rows, right):
        print("".join(words).rstrip())


def columns_of(line: str) -> int:
    """Return the columns of a text on a terminal: 0 for a combining mark, 2 for a wide letter."""
    if line.isascii():
        return len(line)
    return sum(
        0
        if unicodedata.combining(letter)
        else 2
        if unicodedata.east_asian_width(letter) in "WF"
        else 1
        for letter in line
    )


_LINE_ENDS: Final = {number: f"\\u{number:04x}" for number in (0x85, 0x2028, 0x2029)}


def print_json(value: BaseModel | Sequence[BaseModel]) -> None:
    """The API's own objects, as JSON."""
    plain = (
        [each.model_dump(mode="json") for each in value]
        if isinstance(value, Sequence)
        else value.model_dump(mode="json")
    )
    print(one_line_each(json.dumps(plain, indent=2, ensure_ascii=False)))


def one_line_each(text: str) -> str:
    """JSON without the characters that ``splitlines`` and others take for the end of a line."""
    return text.translate(_LINE_ENDS)


_ASKED: Final = {
    Intent.CANCEL: "cancelling",
    Intent.PAUSE: "pausing",
    Intent.REQUEUE: "requeuing",
}


def styled(state: str) -> Word:
    return Word(state, STYLES.get(state.split(" ", maxsplit=1)[0], ""))


def state_of(job: JobView) -> str:
    """Return the job's state, and a pending request to change it."""
    asked = None if job.intent is None else _ASKED.get(job.intent)
    return job.state.value if asked is None else f"{job.state} ({asked})"


def short_id(job_id: str) -> str:
    return job_id[-ID_CHARS:]


def duration(seconds: float | None) -> str:
    """Return a duration in at most two units: ``4 s``, ``2 min 5 s``, ``3 h 20 min``."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    if seconds < 9.95 and seconds != int(seconds):
        return f"{seconds:.1f} s"
    whole = round(max(0.0, seconds))
    for unit, size, smaller, smaller_size in (
        ("d", 86_400, "h", 3_600),
        ("h", 3_600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def turn(queue: QueuePlace) -> str:
    """Return a job's position in the queue, its likely start and its reason.

    ``position 2, about Fri 14:35: …``.
    """
    start = queue.estimated_start
    about = f", about {start.astimezone():%a %H:%M}" if start is not None else ""
    return f"position {queue.position}{about}: {queue.reason}"


def time_limit(limit: TimeLimit) -> str:
    """Return a job's time limit and its origin: ``24 h, default of the service``."""
    origin = {"project": ", default of the project", "service": ", default of the service"}
    return f"{duration(limit.seconds)}{origin.get(limit.source or '', '')}"


def age(moment: datetime | None, now: datetime) -> str:
    return "-" if moment is None else duration(max(0.0, (now - moment).total_seconds() // 1))


def size(count: float | None) -> str:
    """A number of bytes; a measured one that is not finite by name."""
    if count is None:
        return "-"
    if not math.isfinite(count):
        return str(jsonable(count))
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def number(value: float | None) -> str:
    """A metric's value in four significant digits; non-finite ones by name."""
    if value is None:
        return "-"
    if not math.isfinite(value):
        return str(jsonable(value))
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.4g}"


def loss(value: float) -> str:
    """A loss in four decimals, or in three significant digits where those would all be zeros."""
    if not math.isfinite(value):
        return str(jsonable(value))
    return f"{value:.4f}" if abs(value) >= 0.01 or value == 0 else f"{value:.3g}"


def activity(spec: Mapping[str, Any]) -> str:
    """Return in a few words the work that a spec describes."""
    train, script = spec.get("train"), spec.get("script")
    if isinstance(train, dict):
        steps = train.get("steps")
        length = f"{steps} steps" if steps else f"{train.get('epochs')} epochs"
        return f"{train.get('task')}, {length}"
    if isinstance(script, dict):
        return " ".join(map(str, script.get("command", [])))
    return str(spec.get("kind", ""))


def took(job: JobView, now: datetime) -> float | None:
    """Seconds from the job's first start to its end, or to now."""
    if job.started_at is None:
        return None
    return ((job.finished_at or now) - job.started_at).total_seconds()


def writer(rank: int) -> str:
    """Return the writer of a log line, in brackets."""
    return "[launcher]" if rank < 0 else f"[rank {rank}]"


def harmless(text: str) -> str:
    """Return a job's line without sequences that move the cursor or change the terminal.

    Colours stay.
    """
    return _ESCAPES.sub("", text)


def escaped(text: str, *, but: str = "") -> str:
    """A text with each character that is not printed as its escape, as in Python."""
    return "".join(
        letter
        if letter.isprintable() or letter in but
        else letter.encode("unicode_escape").decode()
        for letter in text
    )


def colourless(text: str) -> str:
    """A job's line as letters alone, on one line."""
    return " ".join(_COLOURS.sub("", harmless(text)).replace("\x1b", "").splitlines())
