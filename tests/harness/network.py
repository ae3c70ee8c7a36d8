"""A TCP proxy before a server, which breaks connections at random or on demand.

Not here: any fault of the server itself (``tests.harness.faults.dying``).
"""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from sqlalchemy import make_url

BLOCK_BYTES: Final = 65_536
CONNECT_SECONDS: Final = 5.0
WAYS: Final = ("before the request", "before the answer", "in the answer")
UNAVAILABLE: Final = "503 instead of the request"
RETRY_AFTER_SECONDS: Final = 1
_ANSWER_503: Final = (
    "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"
    f"Retry-After: {RETRY_AFTER_SECONDS}\r\nContent-Length: 0\r\n\r\n"
)


class Wire:
    """Forward bytes to the current listener at ``port()``.

    Each request and each answer may break its connection: ``choose`` gets ``"request"`` or
    ``"answer"`` and returns one of ``WAYS`` or None. For a request it may also return
    ``UNAVAILABLE``: the answer is then 503, like a load balancer's.
    """

    def __init__(self, port: Callable[[], int], choose: Callable[[str], str | None]) -> None:
        self._target = port
        self._choose = choose
        self._listener: socket.socket | None = None
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self.broken: Counter[str] = Counter()
        self.port = 0
        self.listen()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()

    def listen(self) -> None:
        """Accept connections, at the same address as before."""
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=200)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def refuse(self) -> None:
        """Refuse connections from now on, and break those that are open."""
        if self._listener is not None:
            # A close alone leaves the thread in accept(), and with it the socket.
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        with self._lock:
            for end in self._open:
                reset(end)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(("127.0.0.1", self._target()), timeout=CONNECT_SECONDS)
        except OSError:
            close(near)
            return
        far.settimeout(None)
        with self._lock:
            self._open |= {near, far}
        back = threading.Thread(target=self._pass, args=(far, near, "answer"), daemon=True)
        back.start()
        self._pass(near, far, "request")
        back.join()
        with self._lock:
            self._open -= {near, far}
        close(near)
        close(far)

    def _pass(self, source: socket.socket, target: socket.socket, what: str) -> None:
        """Forward incoming bytes, and end both directions if one of them ends."""
        answered = False
        try:
            while block := source.recv(BLOCK_BYTES):
                if answered:  # the unused rest of a request
                    continue
                how = self._choose(what)
                if how is not None:
                    with self._lock:
                        self.broken[how] += 1
                    if how == UNAVAILABLE:
                        source.sendall(_ANSWER_503.encode())
                        answered = True
                        continue
                    if how == WAYS[2]:
                        target.sendall(block[: len(block) // 2])
                    break
                target.sendall(block)
        except OSError:
            pass
        for end in (source, target):
            reset(end)


def by_chance(chance: random.Random, rate: float) -> Callable[[str], str | None]:
    """Break one connection of this number, in any way."""

    def choose(what: str) -> str | None:
        if chance.random() >= rate:
            return None
        return WAYS[0] if what == "request" else chance.choice(WAYS[1:])

    return choose


def reset(end: socket.socket) -> None:
    """End both directions at once, and wake all threads in ``recv``."""
    try:
        # SO_LINGER of zero turns the close that follows into a reset.
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def close(end: socket.socket) -> None:
    end.close()


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
