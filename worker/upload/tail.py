"""Whole lines of files that somebody else is still writing.

A reader's place is a number of bytes. It moves only over whole lines, so that a place written down anywhere can be
read on from by a later process, and a line being written is never taken for two.

Where something was punched out of the file (``worker.upload.sparse_files``) it reads as zeros. No line of ours has a zero byte in it, so a
line that has, and the pieces of lines at both ends of a hole, are passed over together.

Not here: where the place is kept, which decides that nothing is lost or doubled (``worker.upload.shipping``).
"""

from __future__ import annotations

import os
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from lockstep.domain.life.attempt import segment_name

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
    hole: int | None = None
    """Place of something with zero bytes in it that was passed over."""
    at_end: bool = False
    """The file had no more when it was read, except perhaps a line that is being written."""


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
        with path.open("rb", buffering=0) as file:
            file.seek(offset)
            data = file.read(batch_bytes)
            zero = data.find(b"\0")
            if zero >= 0:
                whole = data.rfind(b"\n", 0, zero) + 1
                if whole == 0:
                    return Lines([], _behind_hole(file, offset + zero, batch_bytes), hole=offset)
                # What comes before it first: the hole is then found at the beginning of a batch.
                data, last = data[:whole], False
    except (FileNotFoundError, PermissionError):
        return Lines([], offset)
    at_end = zero < 0 and len(data) < batch_bytes
    end = data.rfind(b"\n") + 1
    if len(data) == batch_bytes and end == 0:
        return Lines([], offset + len(data), too_long=offset)
    if last and at_end:
        end = len(data)
    lines: list[Line] = []
    place = offset
    # Nothing but a newline ends a line; the piece behind the last one is empty unless the writer is gone.
    for text in data[:end].split(b"\n"):
        following = place + len(text) + 1
        if stripped := text.rstrip(b"\r"):
            lines.append(Line(place, min(following, offset + end), stripped))
        place = following
    return Lines(lines, offset + end, at_end=at_end)


def _behind_hole(file: FileIO, offset: int, batch_bytes: int) -> int:
    """Where the first whole line behind a hole begins; the last zero before it as long as none does."""
    place = max(offset, _next_data(file, offset) - 1)
    file.seek(place)
    data = file.read(batch_bytes)
    rest = data.lstrip(b"\0")
    zeros = len(data) - len(rest)
    newline = rest.find(b"\n")
    if newline >= 0:
        return place + zeros + newline + 1
    # Of a line longer than a batch the end is looked for behind it; one that is being written is waited for.
    return place + (len(data) if zeros == 1 and len(data) == batch_bytes else zeros - 1)


def _next_data(file: FileIO, offset: int) -> int:
    """The first place from ``offset`` on that is not in a hole; the file's end if there is none."""
    try:
        return os.lseek(file.fileno(), offset, os.SEEK_DATA)
    except OSError:
        return os.lseek(file.fileno(), 0, os.SEEK_END)


def next_segment_exists(logs: Path, segment: int) -> bool:
    """Whether the launcher has gone on to the next segment, so that this one will not grow any more.

    Ask *before* reading this one to its end: asked afterwards, lines written in between would be left behind.
    """
    return (logs / segment_name(segment + 1)).exists()
