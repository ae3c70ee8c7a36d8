"""A TCP proxy before a server, which breaks connections at random or on demand.

Not here: any fault of the server itself (``tests.faults.dying``).
"""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from typing import Final, Self

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
