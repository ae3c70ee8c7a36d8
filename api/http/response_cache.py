"""Answers that are polled, kept for a moment: fifty people who watch one job cost what one of them does.

An answer is kept under its entity tag, which changes whenever the answer may, and under what was asked. So nothing here is
ever out of date, and what nobody asks for any more is pushed out by what they do. Every token may read everything, so that
what was made for one caller is right for all.

Not here: how tags are compared, and for whom an answer is not needed at all (``api.http.conditional``).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from fastapi import Request, Response

from lockstep.api.http import conditional

BYTES_MAX: Final = 32 * 2**20
"""Of all answers together; one chart of a thousand points is about 60 kB."""


class Rendered:
    """The bodies that were asked for last. Threads share it."""

    def __init__(self, bytes_max: int = BYTES_MAX):
        self._bytes_max = bytes_max
        self._bodies: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def answer(self, request: Request, tag: str, make: Callable[[], bytes]) -> Response:
        """The JSON under ``tag`` to what is asked, made unless it was made for somebody else."""
        asked = f"{request.scope['path']}?{request.scope['query_string'].decode('latin-1')}"
        body = self.get(tag, asked)
        if body is None:
            body = make()
            self.keep(tag, asked, body)
        response = Response(body, media_type="application/json")
        conditional.mark(response, tag)
        return response

    def forget(self) -> None:
        """Let go of every body."""
        with self._lock:
            self._bodies.clear()
            self._bytes = 0

    def get(self, tag: str, asked: str) -> bytes | None:
        """The body of that answer, if it is still here."""
        with self._lock:
            body = self._bodies.get((tag, asked))
            if body is not None:
                self._bodies.move_to_end((tag, asked))
            return body

    def keep(self, tag: str, asked: str, body: bytes) -> None:
        """Keep a body; one that is larger than a quarter of the room is not worth what it would push out."""
        if len(body) > self._bytes_max // 4:
            return
        with self._lock:
            self._bytes += len(body) - len(self._bodies.pop((tag, asked), b""))
            self._bodies[tag, asked] = body
            while self._bytes > self._bytes_max:
                _, oldest = self._bodies.popitem(last=False)
                self._bytes -= len(oldest)
