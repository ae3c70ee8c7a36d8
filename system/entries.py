"""Data of the kernel about a name in a folder, without following a link."""

from __future__ import annotations

import os
import stat
from typing import Literal, NamedTuple

Kind = Literal["file", "folder", "link", "other"]


class FolderEntry(NamedTuple):
    """Something in a folder."""

    name: str
    """Below the folder that was listed."""
    kind: Kind
    bytes: int
    modified_ns: int
    changed_ns: int
    """Of the contents or of anything else about it, such as the name."""
    inode: int
    executable: bool
    """By its owner."""


def entry_of(name: str, status: os.stat_result) -> FolderEntry:
    """Return a name with the kernel's data of it."""
    kind: Kind = "other"
    if stat.S_ISREG(status.st_mode):
        kind = "file"
    elif stat.S_ISDIR(status.st_mode):
        kind = "folder"
    elif stat.S_ISLNK(status.st_mode):
        kind = "link"
    return FolderEntry(
        name,
        kind,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
        bool(status.st_mode & stat.S_IXUSR),
    )
