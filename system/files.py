"""Atomic writes: a reader sees the former contents or the new ones, never a part. Also syncs."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Error numbers of a full disk, and of a quota that is used up."""
BROKEN: Final = frozenset({errno.EROFS, errno.EIO})
"""Error numbers of a disk that fails, or has become read-only after an error."""
_libc: Final = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name in the same folder; at the end of the block it is renamed to ``path``.

    The block writes a file or a new folder there. If it fails, that is removed, and ``path`` stays
    as it was. Without fsync: after a power failure a file may be empty or missing.
    """
    # Without the final name: a program that watches the folder must not read half a file.
    temporary = path.with_name(f".{os.urandom(8).hex()}.part")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, contents: str | bytes) -> None:
    """Write a small file through :func:`replacing`."""
    with replacing(path) as temporary:
        temporary.write_bytes(contents.encode() if isinstance(contents, str) else contents)


def try_to_write(folder: str) -> None:
    """Write an empty file into a folder, and delete it.

    Raises
    ------
    OSError
        If the folder is missing or cannot be written, as on a disk that an error made read-only.
    """
    name = f"{folder}/.probe-{os.urandom(16).hex()}"
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    Path(name).unlink()


def sync_file_system(path: Path) -> None:
    """Sync everything on the file system of a path to the disk.

    Raises
    ------
    OSError
        If the disk fails.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.syncfs(descriptor) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), str(path))
    finally:
        os.close(descriptor)
