"""Reader of whole lines from files that are still being written.

A reader's offset is a number of bytes. It moves only over whole lines, so a later process can
continue from a stored offset, and a partial line is never read as two.

A hole in the file (``worker.upload.files.sparse_files``) reads as zeros. Lockstep's lines contain
no zero byte, so lines with one, and the partial lines at both ends of a hole, are skipped together.

Not here: the storage of offsets, which prevents loss and duplicates
(``worker.upload.file_uploader``).
"""

from __future__ import annotations

import os
from io import FileIO
from typing import NamedTuple

from lockstep.domain.life.attempt import LOGS, segment_name
from lockstep.system.beneath import UnsafeFileError
from lockstep.system.untrusted import Untrusted

BATCH_BYTES_MAX = 256 * 1024
"""Read at once. Also the longest line that is understood: a longer one is skipped."""
LAST_BYTES = 1024
""":attr:`Lines.last_bytes`: enough to recognise a file whose writer has replaced its content."""


class Line(NamedTuple):
    offset: int
    """Bytes into the file at which it begins."""
    end: int
    """Offset of the next line."""
    text: bytes
    """Without its newline."""


class Lines(NamedTuple):
    lines: list[Line]
    offset: int
    """Offset of the next read."""
    too_long: int | None = None
    """Offset of a line longer than a batch, of which the first batch was skipped."""
    hole: int | None = None
    """Offset of something with zero bytes in it that was passed over."""
    at_end: bool = False
    """The file had no more when it was read, except perhaps a line that is being written."""
    rest: bytes = b""
    """The line that is being written, as far as it is."""
    last_bytes: bytes = b""
    """The last bytes before ``offset``, at most ``LAST_BYTES``; none behind a hole."""
    gone: int = 0
    """Bytes before ``offset`` that no longer exist."""


def whole_lines(
    files: Untrusted,
    name: str,
    offset: int,
    *,
    last: bool = False,
    batch_bytes: int = BATCH_BYTES_MAX,
) -> Lines:
    """Return whole lines from ``offset`` on, at most a batch.

    None if the file does not exist, is no regular file or is shorter.

    Parameters
    ----------
    files : Untrusted
    name : str
    offset : int
    last : bool
        True once the writer is gone: the text after the last newline is a line, too.
    batch_bytes : int
    """
    try:
        with files.open(name) as file:
            return lines_in(file, offset, last=last, batch_bytes=batch_bytes)
    except (FileNotFoundError, NotADirectoryError, UnsafeFileError):
        return Lines([], offset)


def lines_in(
    file: FileIO, offset: int, *, last: bool = False, batch_bytes: int = BATCH_BYTES_MAX
) -> Lines:
    """As :func:`whole_lines`, for an open file."""
    file.seek(offset)
    data = file.read(batch_bytes)
    zero = data.find(b"\0")
    if zero >= 0:
        whole = data.rfind(b"\n", 0, zero) + 1
        if whole == 0:
            return Lines([], _behind_hole(file, offset + zero, batch_bytes), hole=offset)
        # The lines before the hole first: the next batch then begins with the hole.
        data, last = data[:whole], False
    at_end = zero < 0 and len(data) < batch_bytes
    end = data.rfind(b"\n") + 1
    if len(data) == batch_bytes and end == 0:
        return Lines([], offset + len(data), too_long=offset)
    if last and at_end:
        end = len(data)
    lines: list[Line] = []
    start = offset
    # Nothing but a newline ends a line; the piece behind the last one is empty unless the writer is
    # gone.
    for text in data[:end].split(b"\n"):
        following = start + len(text) + 1
        if stripped := text.rstrip(b"\r"):
            lines.append(Line(start, min(following, offset + end), stripped))
        start = following
    return Lines(
        lines,
        offset + end,
        at_end=at_end,
        rest=data[end:] if at_end else b"",
        last_bytes=data[max(0, end - LAST_BYTES) : end],
    )


def _behind_hole(file: FileIO, offset: int, batch_bytes: int) -> int:
    """Return the offset of the first whole line after a hole; the last zero while there is none."""
    data_at = max(offset, _next_data(file, offset) - 1)
    file.seek(data_at)
    data = file.read(batch_bytes)
    rest = data.lstrip(b"\0")
    zeros = len(data) - len(rest)
    newline = rest.find(b"\n")
    if newline >= 0:
        return data_at + zeros + newline + 1
    # The end of a line longer than a batch is searched behind it; a partial line is waited for.
    return data_at + (len(data) if zeros == 1 and len(data) == batch_bytes else zeros - 1)


def _next_data(file: FileIO, offset: int) -> int:
    """The first byte from ``offset`` on that is not in a hole; the file's end if there is none."""
    try:
        return os.lseek(file.fileno(), offset, os.SEEK_DATA)
    except OSError:
        return os.lseek(file.fileno(), 0, os.SEEK_END)


def next_segment_exists(files: Untrusted, segment: int) -> bool:
    """Return whether the launcher writes to the next segment, so this one is complete.

    Call it *before* this one is read to its end: otherwise lines written in between would be lost.
    """
    return files.exists(f"{LOGS}/{segment_name(segment + 1)}")
