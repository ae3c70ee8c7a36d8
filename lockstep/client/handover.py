"""A token on its way from this command to a browser of the same person, without being on any command line.

Where a browser goes is told it on its command line, which everybody on the machine can read. So it is sent to a loopback
address of this process, hard to guess and good for one answer: go to the page, with the token behind ``#``, the part of an
address that no browser sends to a server. The page takes it out of its address and keeps it for that tab.

Somebody who reads that loopback address from the list of processes may be faster than the browser. On Linux the kernel says
whose socket asks, and only this user's is answered; where a system does not say, that race remains.

Not here: whether a token is sent at all (``client.cli.shell``), and which one belongs to a server (``client.config``).
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

LOOPBACK: Final = "127.0.0.1"
SOCKETS: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
READ_SECONDS: Final = 2.0
"""Whoever connects asks at once; a silent caller must not hold up the browser."""


def with_token(address: str, token: str) -> str:
    """The address of a page that signs in whoever opens it."""
    return f"{address}#token={quote(token, safe='')}"


class Handover:
    """Answers one browser with the way to ``target``, until it is closed."""

    def __init__(self, target: str):
        self._target = target
        self._path = f"/{secrets.token_urlsafe(32)}"
        self._done = threading.Event()
        self._server = HTTPServer((LOOPBACK, 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """Where the browser is sent."""
        return f"http://{LOOPBACK}:{self._server.server_port}{self._path}"

    def wait(self, seconds: float) -> bool:
        """Whether a browser has been answered, within ``seconds``."""
        return self._done.wait(seconds)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _take(self, path: str, port: int) -> str | None:
        """The way to the page for the first who may have it. One thread asks, one request after the other."""
        if self._done.is_set() or not secrets.compare_digest(path.encode(), self._path.encode()) or not is_mine(port):
            return None
        return self._target

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        handover = self

        class Handler(BaseHTTPRequestHandler):
            timeout = READ_SECONDS

            def do_GET(self) -> None:
                target = handover._take(self.path, self.client_address[1])
                self.send_response(404 if target is None else 303)
                if target is not None:
                    self.send_header("Location", target)
                self.send_header("Cache-Control", "no-store")
                self.send_header("Referrer-Policy", "no-referrer")
                self.send_header("Content-Length", "0")
                self.end_headers()
                if target is not None:
                    handover._done.set()

            def log_message(self, *_: object) -> None:
                """Say nothing: the address is a secret."""

        return Handler


def is_mine(port: int, sockets: tuple[Path, ...] = SOCKETS) -> bool:
    """Whether the loopback socket with this port belongs to this user; true where the system does not say."""
    loopback = int.from_bytes(socket.inet_aton(LOOPBACK), sys.byteorder)
    local = f"{loopback:08X}:{port:04X}"
    says = False
    for table in sockets:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        says = True
        for line in lines:
            fields = line.split()
            # Of an IPv6 socket that speaks IPv4, the address ends in the IPv4 one.
            if fields[1].endswith(local):
                return int(fields[7]) == os.getuid()
    return not says
