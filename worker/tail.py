"""Whole lines of files that somebody else is still writing.

A reader's place is a number of bytes. It moves only over whole lines, so that a place written down anywhere can be
read on from by a later process, and a line being written is never taken for two.

Not here: where the place is kept, which decides that nothing is lost or doubled (``worker.shipping``).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from domain.attempt import segment_name

BATCH_BYTES_MAX = 256 * 1024
"""Read at once. Also the longest line that is understood: a longer one is skipped."""


class Line(NamedTuple):
    offset: int
    """Bytes into the file at which it begins."""
    end: int
    """Where the next one begins."""
    text: bytes
    """Without its newline."""


class Lines(NamedTuple):
    lines: list[Line]
    offset: int
    """Where to read on."""
    too_long: int | None = None
    """Place of a line longer than a batch, of which the first batch was skipped."""


def whole_lines(path: Path, offset: int, *, last: bool = False, batch_bytes: int = BATCH_BYTES_MAX) -> Lines:
    """Whole lines from ``offset`` on, at most a batch of them; none if the file is not there or is shorter than that.

    None either where something else is in its place: user code is told the name, and a job that makes a folder or a
    pipe of it must not hold up the end of its own attempt.

    Parameters
    ----------
    path : Path
    offset : int
    last : bool
        The writer is gone: what follows the last newline is a line too.
    batch_bytes : int
    """
    if not path.is_file():
        return Lines([], offset)
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(batch_bytes)
    except (FileNotFoundError, PermissionError):
        return Lines([], offset)
    end = data.rfind(b"\n") + 1
    if len(data) == batch_bytes and end == 0:
        return Lines([], offset + len(data), too_long=offset)
    if last and len(data) < batch_bytes:
        end = len(data)
    lines: list[Line] = []
    place = offset
    for text in _split(data[:end]):
        if stripped := text.rstrip(b"\r\n"):
            lines.append(Line(place, place + len(text), stripped))
        place += len(text)
    return Lines(lines, place)


def _split(data: bytes) -> list[bytes]:
    """Like ``splitlines(keepends=True)``, except that nothing but a newline ends a line."""
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def next_segment_exists(logs: Path, segment: int) -> bool:
    """Whether the launcher has gone on to the next segment, so that this one will not grow any more.

    Ask *before* reading this one to its end: asked afterwards, lines written in between would be left behind.
    """
    return (logs / segment_name(segment + 1)).exists()
