"""One connection over HTTP/1.1 that stays open and costs little.

The other side is measured.

The standard library's client takes about a fifth of the processor time of a convenient one, and the
load comes from the measured machine.

Not here: the times of the requests (``load``).
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from benchmarks.service.load import Connect, Send

TIMEOUT_SECONDS = 120.0


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def document(self) -> Any:
        """Return the JSON of the body.

        Raises
        ------
        RuntimeError
            If the answer is a refusal.
        """
        if self.status >= 400:
            raise RuntimeError(
                f"answered {self.status}: {self.body[:500].decode(errors='replace')}"
            )
        return json.loads(self.body)


class Wire:
    """One connection; one thread at a time."""

    def __init__(self, url: str, token: str | None = None):
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_SECONDS)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def connect(self) -> None:
        """Open it now, and not with the first request."""
        self._connection.connect()

    def close(self) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, document: Any = None, **headers: str) -> Answer:
        """Send one request and read the whole answer. ``headers`` are written with underscores.

        A connection that the other side closed between two requests is opened once more.
        """
        body = None if document is None else json.dumps(document).encode()
        sent = {
            **self._headers,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        if body is not None:
            sent["Content-Type"] = "application/json"
        fresh = self._connection.sock is None
        try:
            return self._once(method, path, body, sent)
        except (ConnectionError, http.client.HTTPException) as error:
            self._connection.close()
            if fresh or not isinstance(error, ConnectionError):
                raise ConnectionError(f"{method} {path}: {error}") from error
        return self._once(method, path, body, sent)

    def _once(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Answer:
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        return Answer(response.status, response.headers, response.read())

    def post(self, path: str, document: Any) -> Any:
        """Send a POST; return the answer's document."""
        return self.ask("POST", path, document).document()

    def get(self, path: str) -> Any:
        """Send a GET; return the answer's document."""
        return self.ask("GET", path).document()


def sender(open_wire: Callable[[], Wire], request: Callable[[Wire, int], Answer]) -> Connect:
    """Return the function that ``load`` calls for each of its connections."""

    @contextmanager
    def connect() -> Iterator[Send]:
        with closing(open_wire()) as wire:
            wire.connect()
            yield lambda number: request(wire, number).status

    return connect


def median_ms(
    ask: Callable[[], Answer],
    *,
    status: int,
    times: int,
    before: Callable[[], object] = lambda: None,
) -> float:
    """Return the median time of one request after the other, in milliseconds.

    Every answer must have that status. The time of ``before``, which runs before each request, is
    not included.
    """
    found = []
    for _ in range(times):
        before()
        began = time.perf_counter()
        answer = ask()
        found.append(time.perf_counter() - began)
        if answer.status != status:
            raise RuntimeError(
                f"expected {status}, was answered {answer.status}: {answer.body[:500]!r}"
            )
    return 1e3 * sorted(found)[len(found) // 2]


def wait_until(ask: Callable[[], bool], seconds: float, what: str, *, pause: float = 0.1) -> None:
    """Poll until the answer is true.

    Raises
    ------
    TimeoutError
        The message contains ``what``.
    """
    deadline = time.monotonic() + seconds
    while not ask():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(pause)


def free_port() -> int:
    """Return a port of this machine without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
