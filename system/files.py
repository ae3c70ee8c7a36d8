"""Atomic writes: a reader sees the former contents or the new ones, never a part."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, contents: str | bytes) -> None:
    """Write under a temporary name in the same folder, then rename.

    Without fsync: after a power failure the file may be empty or missing.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(contents.encode() if isinstance(contents, str) else contents)
    temporary.replace(path)
