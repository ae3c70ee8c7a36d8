"""Removal of a tree of any depth and number of entries, in slices of time.

It never follows a link and never recurses. The folders of a subfolder are renamed up beside it, so
that three descriptors suffice at any depth, and each folder is renamed once at most. All of the
state is in the file system: a later call continues, also that of another process.

Not here: names below a folder that others write (``system.untrusted``).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from typing import Final

_FOLDER: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(parent: int, name: str, seconds: float) -> bool:
    """Remove ``name`` from an open folder. Return False if more is left after this time.

    Raises
    ------
    FileNotFoundError
        If it does not exist.
    OSError
        If nothing of the rest can be removed.
    """
    deadline = time.monotonic() + seconds
    if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        _unlink(parent, name)
        return True
    top = _opened(parent, name)
    try:
        if not _emptied(top, deadline):
            return False
    finally:
        os.close(top)
    _rmdir(parent, name)
    return True


def _emptied(top: int, deadline: float) -> bool:
    """Remove everything in a folder, pass by pass. False if the time did not suffice."""
    while True:
        removed, failure = 0, None
        with os.scandir(top) as entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        _dissolve(top, entry.name, deadline)
                    else:
                        _unlink(top, entry.name)
                    removed += 1
                except OSError as error:
                    failure = failure or error
                if time.monotonic() >= deadline:
                    return False
        if removed == 0:
            if failure is not None:
                raise failure
            return True


def _dissolve(top: int, name: str, deadline: float) -> None:
    """Remove the files of a folder in ``top``, rename its folders into ``top``, and remove it."""
    folder = _opened(top, name)
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if time.monotonic() >= deadline:
                    return
                if entry.is_dir(follow_symlinks=False):
                    _lift(folder, entry.name, top)
                else:
                    _unlink(folder, entry.name)
    finally:
        os.close(folder)
    try:
        _rmdir(top, name)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:  # A long list may miss entries; the next pass has them.
            raise


def _lift(folder: int, name: str, top: int) -> None:
    lifted = f".{os.urandom(8).hex()}"
    try:
        os.rename(name, lifted, src_dir_fd=folder, dst_dir_fd=top)
    except PermissionError:
        # The entry ".." of a moved folder changes, so the folder itself must be writable.
        os.close(_opened(folder, name))
        os.rename(name, lifted, src_dir_fd=folder, dst_dir_fd=top)


def _opened(parent: int, name: str) -> int:
    """Open a folder. Its owner may have denied the access to this user, which is its owner."""
    try:
        folder = os.open(name, os.O_RDONLY | _FOLDER, dir_fd=parent)
    except PermissionError:
        handle = os.open(name, os.O_PATH | _FOLDER, dir_fd=parent)
        try:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)  # noqa: PTH101 - a descriptor has no path
        finally:
            os.close(handle)
        return os.open(name, os.O_RDONLY | _FOLDER, dir_fd=parent)
    if os.fstat(folder).st_mode & 0o700 != 0o700:
        with contextlib.suppress(PermissionError):
            os.fchmod(folder, 0o700)
    return folder


def _unlink(folder: int, name: str) -> None:
    os.unlink(name, dir_fd=folder)


def _rmdir(folder: int, name: str) -> None:
    os.rmdir(name, dir_fd=folder)
