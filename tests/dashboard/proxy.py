"""A reverse proxy between a browser and the service, which can spoil answers.

It cuts their bodies, sends them slowly, or answers 502 instead.
"""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}
TIMEOUT_SECONDS = 60
SLOW_SECONDS, SLOW_PIECES = 24, 12
"""Longer than a page waits without a byte, in pieces that come often enough."""
GATEWAY = b"<html><h1>502 Bad Gateway</h1></html>"


class Proxy:
    """Proxy that forwards every request.

    While ``cut`` matches an address, its answer ends in the middle of the body; ``lost``: the
    answer is a page with status 502; ``slow``: the body comes in pieces, over ``SLOW_SECONDS``.
    """

    def __init__(self, target: str):
        self.target = urlsplit(target).netloc
        self.cut: re.Pattern[str] | None = None
        self.lost: re.Pattern[str] | None = None
        self.slow: re.Pattern[str] | None = None
        self.cuts = 0
        self.requests: Counter[str] = Counter()
        """By path, without the query."""
        self.bytes: Counter[str] = Counter()
        """Transferred bytes of bodies, by path."""
        self.address = ""

    def count(self, path: str, sent: int) -> None:
        self.requests[path] += 1
        self.bytes[path] += sent


@contextmanager
def proxy(target: str) -> Iterator[Proxy]:
    """Run a proxy in front of ``target``, on a free port of the loopback."""
    state = Proxy(target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if state.lost is not None and state.lost.search(self.path):
                state.cuts += 1
                self.send_response(502)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(GATEWAY)))
                self.end_headers()
                self.wfile.write(GATEWAY)
                return
            length = int(self.headers.get("Content-Length", "0"))
            sent = self.rfile.read(length) if length else None
            # An answer without a body could be neither cut nor slow.
            left_out = HOP_BY_HOP | ({"if-none-match"} if state.cut or state.slow else set())
            headers = {
                name: value for name, value in self.headers.items() if name.lower() not in left_out
            }
            upstream = http.client.HTTPConnection(state.target, timeout=TIMEOUT_SECONDS)
            try:
                upstream.request(self.command, self.path, sent, headers)
                answer = upstream.getresponse()
                body = answer.read()
            except OSError:
                self.close_connection = True
                return
            finally:
                upstream.close()
            self.send_response(answer.status, answer.reason)
            for name, value in answer.getheaders():
                if name.lower() not in HOP_BY_HOP | {"date", "server"}:
                    self.send_header(name, value)
            if answer.status not in {204, 304}:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            state.count(urlsplit(self.path).path, len(body))
            if state.cut is not None and body and state.cut.search(self.path):
                state.cuts += 1
                self.wfile.write(body[: len(body) // 2])
                self.close_connection = True
                return
            if state.slow is not None and state.slow.search(self.path):
                state.cuts += 1
                size = len(body) // SLOW_PIECES + 1
                for start in range(0, len(body), size):
                    time.sleep(SLOW_SECONDS / SLOW_PIECES)
                    self.wfile.write(body[start : start + size])
                    self.wfile.flush()
                return
            self.wfile.write(body)

        do_POST = do_PUT = do_DELETE = do_PATCH = do_GET  # noqa: N815 -- names of http.server

        def log_message(self, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=TIMEOUT_SECONDS)
