"""Atomic writes: a reader sees the former contents or the new ones, never a part."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


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
