"""A link to a server that can be cut and healed: while it is cut, no byte and no error passes.

This is like dropped packets: connections remain open and silent, and new ones are not answered.
Bytes sent meanwhile arrive when the link is healed, as TCP would send them again, or are lost with
their connections, as if that had taken too long.

Not here: connections that break with an error (``tests.faults.wire``).
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from sqlalchemy import make_url

BLOCK_BYTES = 65_536


class Link:
    """Listener on a port of its own that forwards everything to the target of ``connect``."""

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._connect = connect
        self._passes = threading.Event()
        self._passes.set()
        self._lock = threading.Lock()
        self._ends: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.heal(late=False)

    def cut(self) -> None:
        """Stop all traffic from now on."""
        self._passes.clear()

    def heal(self, *, late: bool) -> None:
        """Resume all traffic.

        If ``late``, pending bytes are delivered. Otherwise all earlier connections break.
        """
        if not late:
            with self._lock:
                for end in self._ends:
                    with suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)
        self._passes.set()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near, self._known(near):
            self._passes.wait()
            try:
                far = self._connect()
            except OSError:
                return
            with far, self._known(far):
                back = threading.Thread(target=self._pass, args=(far, near), daemon=True)
                back.start()
                self._pass(near, far)
                back.join()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        """Forward incoming bytes, and the end of the stream."""
        with suppress(OSError):
            while block := source.recv(BLOCK_BYTES):
                self._passes.wait()
                target.sendall(block)
            self._passes.wait()
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _known(self, end: socket.socket) -> _Known:
        return _Known(end, self._ends, self._lock)


class _Known:
    """A connection that ``heal`` may break."""

    def __init__(self, end: socket.socket, ends: set[socket.socket], lock: threading.Lock) -> None:
        self._end, self._ends, self._lock = end, ends, lock

    def __enter__(self) -> None:
        with self._lock:
            self._ends.add(self._end)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._ends.discard(self._end)


def to_postgres(url: str) -> Callable[[], socket.socket]:
    """Return a function that connects to the server of a database's URL."""
    named = make_url(url)
    host = str(named.query.get("host", named.host))
    port = named.port or 5432
    return (
        to_unix(f"{host}/.s.PGSQL.{port}")
        if host.startswith("/")
        else lambda: socket.create_connection((host, port))
    )


def to_unix(path: str) -> Callable[[], socket.socket]:
    """Return a function that connects to a unix socket."""

    def connect() -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.connect(path)
        return made

    return connect


def through(link: Link, url: str) -> str:
    """Return the database's URL through the link."""
    named = make_url(url).difference_update_query(["host"]).set(host="127.0.0.1", port=link.port)
    return named.render_as_string(hide_password=False)
