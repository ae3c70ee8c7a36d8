"""Transfer of a single-use code from this command to the user's browser, off the command line.

Every user of the machine can read a browser's command line. The browser is therefore sent to a
loopback address of this process that is hard to guess and answers once, with a redirect to the page
and the code behind ``#``, the part of an address that browsers do not send to a server. The page
removes the code from its address, starts a session with it, and keeps the session's token for that
tab.

Another user who reads the loopback address from the process list may request it first. On Linux the
kernel names the user of each socket, and only this user is redirected. On other systems the other
user may be first.

Not here: making the code (``client.account``), the choice of the address (``cli.service.shell``).
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

LOOPBACK: Final = "127.0.0.1"
SOCKETS: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
READ_SECONDS: Final = 2.0
"""Limit for a request: a silent connection must not delay the browser."""


def with_code(address: str, code: str) -> str:
    """Return the address of a page that signs in its first visitor."""
    return f"{address}#code={quote(code, safe='')}"


class Handover:
    """Answers one browser with the way to ``target``, until it is closed."""

    def __init__(self, target: str):
        self._target = target
        self._path = f"/{secrets.token_urlsafe(32)}"
        self._done = threading.Event()
        self._server = HTTPServer((LOOPBACK, 0), self._handler())
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )

    @property
    def url(self) -> str:
        """Address for the browser."""
        return f"http://{LOOPBACK}:{self._server.server_port}{self._path}"

    def wait(self, seconds: float) -> bool:
        """Return whether a browser was answered within ``seconds``."""
        return self._done.wait(seconds)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _target_for(self, path: str, port: int) -> str | None:
        """Return the target for the first permitted request, and None for every other.

        Requests are handled one after the other. The handler marks the target as taken.
        """
        if (
            self._done.is_set()
            or not secrets.compare_digest(path.encode(), self._path.encode())
            or not is_mine(port)
        ):
            return None
        return self._target

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        handover = self

        class Handler(BaseHTTPRequestHandler):
            timeout = READ_SECONDS

            def do_GET(self) -> None:
                target = handover._target_for(self.path, self.client_address[1])
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
                """Log nothing: the address is a secret."""

        return Handler


def is_mine(port: int, sockets: tuple[Path, ...] = SOCKETS) -> bool:
    """Return whether the loopback socket with this port belongs to this user.

    True if the system does not report it.
    """
    loopback = int.from_bytes(socket.inet_aton(LOOPBACK), sys.byteorder)
    local = f"{loopback:08X}:{port:04X}"
    reported = False
    for table in sockets:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        reported = True
        for line in lines:
            fields = line.split()
            # The address of an IPv6 socket that carries IPv4 ends with the IPv4 address.
            if fields[1].endswith(local):
                return int(fields[7]) == os.getuid()
    return not reported
