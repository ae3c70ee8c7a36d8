"""A link to a server that can be cut and healed: while it is cut nothing passes, and nobody is
told.

As when packets are dropped: connections stay open and silent, new ones are not answered. What was
sent meanwhile arrives when the link is healed, as TCP would send it again, or is lost with its
connections, as if that had taken too long.

Not here: connections that break with a word (``tests.faults.wire``).
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
    """Listens on a port of its own and passes everything on to what ``connect`` connects to."""

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
        """Let nothing pass from now on."""
        self._passes.clear()

    def heal(self, *, late: bool) -> None:
        """Let everything pass again: also what was sent meanwhile, if ``late``; or break the
        connections of before."""
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
        """Pass on what comes, and the end with it."""
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
    """An end that ``heal`` may break."""

    def __init__(self, end: socket.socket, ends: set[socket.socket], lock: threading.Lock) -> None:
        self._end, self._ends, self._lock = end, ends, lock

    def __enter__(self) -> None:
        with self._lock:
            self._ends.add(self._end)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._ends.discard(self._end)


def to_postgres(url: str) -> Callable[[], socket.socket]:
    """Connects to the server that a database's URL names."""
    named = make_url(url)
    host = str(named.query.get("host", named.host))
    port = named.port or 5432
    return (
        to_unix(f"{host}/.s.PGSQL.{port}")
        if host.startswith("/")
        else lambda: socket.create_connection((host, port))
    )


def to_unix(path: str) -> Callable[[], socket.socket]:
    """Connects to a unix socket."""

    def connect() -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.connect(path)
        return made

    return connect


def through(link: Link, url: str) -> str:
    """The database's URL by way of the link."""
    named = make_url(url).difference_update_query(["host"]).set(host="127.0.0.1", port=link.port)
    return named.render_as_string(hide_password=False)
