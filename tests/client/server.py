"""A small real HTTP server that replays answers.

Both sides use the same types: an answer is an object of ``domain.views``, so it is always a
possible answer of the api. The api's real answers are tested end to end.
"""

from __future__ import annotations

import hashlib
import json
import socket
import ssl
import struct
import sys
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel

from lockstep.domain.views import Problem


@dataclass(frozen=True)
class Answer:
    """One answer: a status and a body."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    """Bytes of the body after which the connection breaks."""


RESET = Answer(0)
"""No answer: the connection is reset."""


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def view(value: BaseModel, status: int = 200) -> Answer:
    return Answer(status, value.model_dump_json().encode(), {"Content-Type": "application/json"})


def problem(status: int, code: str, detail: str, **more: Any) -> Answer:
    document = Problem(title=code, status=status, detail=detail, code=code, **more)
    return Answer(
        status, document.model_dump_json().encode(), {"Content-Type": "application/problem+json"}
    )


class ReplayServer:
    """Server with a list of answers for each address.

    They are sent one after the other, and the last one repeatedly.
    """

    def __init__(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[Asked] = []
        self._answers: dict[tuple[str, str], list[Answer]] = defaultdict(list)
        self._lock = threading.Lock()
        self._http = _Http(("127.0.0.1", port), self)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self.port = self._http.server_address[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        if tls is not None:
            self._http.socket = tls.wrap_socket(
                self._http.socket, server_side=True, do_handshake_on_connect=False
            )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def on(self, method: str, path: str, *answers: Answer | BaseModel) -> None:
        """Set the answers of an address from now on.

        A path that ends in ``*`` matches everything in its folder.
        """
        with self._lock:
            self._answers[method, path] = [
                each if isinstance(each, Answer) else view(each) for each in answers
            ]

    def requests(self, method: str, path: str) -> list[Asked]:
        return [each for each in self.asked if (each.method, each.path) == (method, path)]

    def answer(self, asked: Asked) -> Answer:
        with self._lock:
            self.asked.append(asked)
            waiting = (
                self._answers[asked.method, asked.path]
                or self._answers[asked.method, _anything_below(asked.path)]
            )
            if not waiting:
                return problem(
                    404, "not_found", f"{asked.method} {asked.path}: no answer was prepared"
                )
            return waiting.pop(0) if len(waiting) > 1 else waiting[0]


def _anything_below(path: str) -> str:
    return path.rpartition("/")[0] + "/*"


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], replay: ReplayServer):
        super().__init__(address, _Handler)
        self.replay = replay

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error of a client that refuses the certificate during the handshake."""
        if not isinstance(sys.exception(), ssl.SSLError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Http

    def _serve(self) -> None:
        split = urlsplit(self.path)
        length = int(self.headers.get("Content-Length", 0))
        asked = Asked(
            self.command,
            split.path,
            parse_qs(split.query),
            {name.lower(): value for name, value in self.headers.items()},
            self.rfile.read(length),
        )
        answer = self.server.replay.answer(asked)
        if answer is RESET:
            # SO_LINGER of zero turns the close into a reset.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        etag = answer.headers.get("ETag") or f'"{hashlib.sha256(answer.body).hexdigest()[:16]}"'
        known = (
            self.command == "GET"
            and answer.status == 200
            and asked.headers.get("if-none-match") == etag
        )
        self.send_response(304 if known else answer.status)
        self.send_header("ETag", etag)
        for name, value in answer.headers.items():
            if name != "ETag":
                self.send_header(name, value)
        if not known:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if not known:
            self.wfile.write(answer.body[: answer.cut])
            self.close_connection = self.close_connection or answer.cut is not None

    do_DELETE = do_GET = do_PATCH = do_POST = do_PUT = _serve  # noqa: N815 - a name of the base class

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Print nothing."""
