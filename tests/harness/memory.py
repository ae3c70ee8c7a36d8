"""Files of the tests in memory, where the machine has enough of it.

A commit or a checkpoint waits milliseconds for a disk, and the tests make tens of thousands. They
check the calls, not the disk.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

ROOM_BYTES = 4 * 2**30
"""Of all files of a run, several times."""


def folder() -> Path | None:
    """Return a file system in memory with enough room for files and programs, or None."""
    found = Path("/dev/shm")
    usable = (
        found.is_dir() and os.access(found, os.W_OK) and not os.statvfs(found).f_flag & os.ST_NOEXEC
    )
    return found if usable and shutil.disk_usage(found).free > ROOM_BYTES else None
