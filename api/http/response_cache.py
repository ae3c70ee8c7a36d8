"""Cache of rendered responses: many clients that poll one job cost as much as one.

The key is the entity tag, which changes whenever the response may, and the path with its query.
Entries are therefore never stale. The least recently used are evicted first. Every token may read
everything, and clients can share entries.

Not here: comparing tags, 304 responses (``api.http.conditional``).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from fastapi import Request, Response

from lockstep.api.http import conditional

BYTES_MAX: Final = 32 * 2**20
"""Limit of all bodies together. One chart of a thousand points is about 60 kB."""


class ResponseCache:
    """LRU cache of response bodies. Thread-safe."""

    def __init__(self, bytes_max: int = BYTES_MAX):
        self._bytes_max = bytes_max
        self._bodies: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def answer(self, request: Request, tag: str, make: Callable[[], bytes]) -> Response:
        """Return the JSON response under ``tag``, from the cache or made by ``make``."""
        asked = f"{request.scope['path']}?{request.scope['query_string'].decode('latin-1')}"
        body = self.get(tag, asked)
        if body is None:
            body = make()
            self.keep(tag, asked, body)
        response = Response(body, media_type="application/json")
        conditional.mark(response, tag)
        return response

    def forget(self) -> None:
        """Remove every body."""
        with self._lock:
            self._bodies.clear()
            self._bytes = 0

    def get(self, tag: str, asked: str) -> bytes | None:
        """Return the cached body, or None."""
        with self._lock:
            body = self._bodies.get((tag, asked))
            if body is not None:
                self._bodies.move_to_end((tag, asked))
            return body

    def keep(self, tag: str, asked: str, body: bytes) -> None:
        """Store a body, unless it is larger than a quarter of the cache."""
        if len(body) > self._bytes_max // 4:
            return
        with self._lock:
            self._bytes += len(body) - len(self._bodies.pop((tag, asked), b""))
            self._bodies[tag, asked] = body
            while self._bytes > self._bytes_max:
                _, oldest = self._bodies.popitem(last=False)
                self._bytes -= len(oldest)
