"""Signs of life of the programs of a local service.

A program that is stopped as a whole, or whose threads all wait, does not end and is not started
again. Therefore each program sends signs of life to ``lockstep up`` (``system.watchdog``), and the
broker, which is not ours, answers a ping.

Not here: the end of a silent program (``client.local.supervisor``).
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from pathlib import Path
from typing import Final, Protocol

PING_SECONDS: Final = 5.0
"""Interval between two pings."""


class Signs(Protocol):
    """The signs of life of one program."""

    @property
    def environment(self) -> dict[str, str]:
        """Variables that the program needs to send them."""

    def received(self) -> bool:
        """Return whether there was one since the last call. Never blocks."""

    def close(self) -> None:
        """Close what is open."""


class Notifications:
    """Datagrams of the program, by the protocol of ``sd_notify``.

    Without abstract unix sockets (not Linux) there are none.
    """

    def __init__(self) -> None:
        self.environment: dict[str, str] = {}
        self._socket: socket.socket | None = None
        if sys.platform == "linux":
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            self._socket.bind("")  # the kernel chooses an abstract address that is free
            name: bytes = self._socket.getsockname()
            self.environment["NOTIFY_SOCKET"] = "@" + name[1:].decode("ascii")

    def received(self) -> bool:
        found = False
        with contextlib.suppress(BlockingIOError):
            while self._socket is not None:
                found = b"WATCHDOG=1" in self._socket.recv(4096) or found
        return found

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Ping:
    """Answers of a Redis server on a unix socket."""

    def __init__(self, path: Path) -> None:
        self.environment: dict[str, str] = {}
        self._path = path
        self._asked: socket.socket | None = None
        self._next_at = 0.0

    def received(self) -> bool:
        if self._asked is None:
            if time.monotonic() >= self._next_at:
                self._ask()
            return False
        try:
            answer = self._asked.recv(64)
        except BlockingIOError:
            return False
        except OSError:
            answer = b""
        self.close()
        return bool(answer)

    def close(self) -> None:
        if self._asked is not None:
            self._asked.close()
            self._asked = None

    def _ask(self) -> None:
        self._next_at = time.monotonic() + PING_SECONDS
        asked = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        asked.setblocking(False)
        try:
            asked.connect(str(self._path))
            asked.send(b"PING\r\n")
        except OSError:
            asked.close()  # it does not listen yet, or its queue of connections is full
        else:
            self._asked = asked
