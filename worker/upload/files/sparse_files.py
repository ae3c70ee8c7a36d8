"""Release of a file's disk blocks without a change of its offsets.

A spool is only appended to, by a foreign writer that keeps it open: it can be neither rotated nor
truncated. Stored data, and data that can never be stored, is punched out instead (Linux, all common
local file systems): the file's length and offsets stay, its blocks are freed.

Not here: the choice of ranges (``worker.upload.metrics``), and reads across a hole
(``worker.upload.files.lines``).
"""

from __future__ import annotations

import ctypes
import os
import stat
from typing import Final

from lockstep.system.untrusted import Untrusted

_KEEP_SIZE: Final = 0x01
_PUNCH_HOLE: Final = 0x02
BLOCK_BYTES: Final = 4096
"""Holes begin and end at multiples of it: smaller pieces would be overwritten with zeros, which
frees nothing."""


def punch(files: Untrusted, name: str, start: int, end: int) -> bool:
    """Free the whole blocks between two offsets of a file; they read as zeros from then on.

    Returns
    -------
    bool
        False where there is no such file, no whole block between them, or a file system that cannot
        do it.
    """
    first = -(-start // BLOCK_BYTES) * BLOCK_BYTES
    length = end // BLOCK_BYTES * BLOCK_BYTES - first
    if length <= 0:
        return False
    try:
        descriptor = files.descriptor(name, os.O_WRONLY)
    except OSError:
        return False
    try:
        mode = _PUNCH_HOLE | _KEEP_SIZE
        refused: int = ctypes.CDLL(None).fallocate(
            descriptor, mode, ctypes.c_int64(first), ctypes.c_int64(length)
        )
        return refused == 0
    except AttributeError:  # a C library without it
        return False
    finally:
        os.close(descriptor)


def shrink_to(files: Untrusted, name: str, bytes_max: int) -> int:
    """Free the middle of a file that takes more of the disk than it may.

    Half of ``bytes_max`` stays at its head, and a quarter at its end.

    Returns
    -------
    int
        Bytes that were freed; 0 if it takes no more than it may.
    """
    taken = taken_bytes(files, name)
    if taken <= bytes_max:
        return 0
    head = _first_data(files, name) + bytes_max // 2
    return (
        max(0, taken - taken_bytes(files, name))
        if punch(files, name, head, files.size(name) - bytes_max // 4)
        else 0
    )


def taken_bytes(files: Untrusted, name: str) -> int:
    """Return a file's bytes on the disk, without holes; 0 if it is no file."""
    found = files.status(name)
    return found.st_blocks * 512 if found is not None and stat.S_ISREG(found.st_mode) else 0


def _first_data(files: Untrusted, name: str) -> int:
    with files.open(name) as file:
        return os.lseek(file.fileno(), 0, os.SEEK_DATA)
