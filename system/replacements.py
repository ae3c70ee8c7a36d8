"""Replacement of a file in an open folder that another program writes, also on a full disk.

A reader sees the former contents or the new ones, never a part.

Not here: names below links (``system.beneath``), writes in folders of the service
(``system.files``).
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Final

from lockstep.system import beneath
from lockstep.system.beneath import UnsafeFileError
from lockstep.system.files import FULL

QUIET: Final = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Flags of an open that never waits for the other end of a pipe, or for a terminal."""


def write(folder: int, last: str, content: bytes) -> None:
    """Replace whatever has the name ``last``. On a full disk take the space that is kept for it."""
    temporary = f".{os.urandom(8).hex()}.part"
    try:
        _put(folder, temporary, content, os.O_CREAT | os.O_EXCL)
        _rename(folder, temporary, last)
    except BaseException as error:
        _unlink(folder, temporary)
        is_full = isinstance(error, OSError) and error.errno in FULL
        if not (is_full and _put_into_reserve(folder, last, content)):
            raise


def reserve(folder: int, last: str, most: int) -> None:
    """Keep space for contents of at most so many bytes, in a spare file beside the name."""
    _put(folder, _spare(last), bytes(most))


def write_all(descriptor: int, content: bytes) -> None:
    """Write all bytes to an open file."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _spare(name: str) -> str:
    return f".{name}.spare"


def _put_into_reserve(folder: int, last: str, content: bytes) -> bool:
    """Write into the spare file, and give it the name. Return False without one."""
    spare = _spare(last)
    try:
        _put(folder, spare, content, 0)
    except FileNotFoundError:
        return False
    if not beneath.exchanged(folder, spare, last):
        _rename(folder, spare, last)
        with contextlib.suppress(OSError):  # The space of the former file may be free.
            _put(folder, spare, content)
    return True


def _rename(folder: int, temporary: str, last: str) -> None:
    try:
        os.replace(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
    except IsADirectoryError:
        os.rename(last, f"{temporary}.aside", src_dir_fd=folder, dst_dir_fd=folder)
        os.replace(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)


def _put(folder: int, name: str, content: bytes, flags: int = os.O_CREAT) -> None:
    """Write from the beginning and cut the rest, so that the first block stays allocated."""
    how = os.O_WRONLY | os.O_NOFOLLOW | QUIET | flags
    descriptor = os.open(name, how, 0o600, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnsafeFileError(name, "not_regular")
        write_all(descriptor, content)
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)


def _unlink(folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
