"""Lock on a run's folder: one run at a time writes its spools and checkpoints.

Two runs in one folder delete each other's checkpoints. Under the service each attempt has its own
folder. Without the service, two users, or a restart beside ranks that still train, may use the same
folder.

The lock is ``flock`` on a file in the folder and ends with the process. ``lockf`` is not used
because it loses its lock when any part of the process closes the file. The file stays and names the
last holder.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

FILE: Final = "run.lock"
_UNSUPPORTED: Final = frozenset(
    {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}
)
"""Errors of ``flock`` on file systems without locks."""


class FolderInUseError(Exception):
    """Another run holds the folder. The message names its process."""


def hold(folder: Path) -> str:
    """Lock ``folder`` until this process ends. Call it on one rank of a run.

    Returns
    -------
    str
        Why the folder is not locked, on a file system without locks; empty where it is.

    Raises
    ------
    FolderInUseError
    OSError
        If the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in _UNSUPPORTED:
            return f"{folder} cannot be locked ({error.strerror}): do not start a second run in it"
        if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
            raise FolderInUseError(
                f"{folder} is in use by another run ({_holder(path)}): wait until it ends, stop "
                "it, or use another folder with --out"
            ) from None
        raise
    os.ftruncate(descriptor, 0)
    os.write(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
    # A forked loader worker shares the lock; it must not hold the folder after its rank is gone.
    os.register_at_fork(after_in_child=_closer(descriptor))
    return ""


def _closer(descriptor: int) -> Callable[[], None]:
    """Return a function that closes ``descriptor`` once.

    In a grandchild the number may belong to another file.
    """
    held = [descriptor]

    def close() -> None:
        if held:
            os.close(held.pop())

    return close


def _holder(path: Path) -> str:
    """Return the process that the lock's file names."""
    try:
        named = json.loads(path.read_text())
        return f"process {int(named['pid'])} on {named['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "an unknown process"  # It is about to write its name.
