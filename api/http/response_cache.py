"""Cache of rendered responses: many clients that poll one job cost as much as one.

The key is the entity tag, which changes whenever the response may, the place that it was read from
(``api.http.places``), and the path with its query.
Entries are therefore never stale. The tag also has the projects that a reader may read, so readers
of the same projects share entries.

Not here: comparing tags, 304 responses (``api.http.conditional``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fastapi import Request, Response

from lockstep.api.http import conditional, places
from lockstep.api.http.recently_used import RecentlyUsed

BYTES_MAX: Final = 32 * 2**20
"""Limit of all bodies together. One chart of a thousand points is about 60 kB."""


class ResponseCache:
    """Response bodies of the last requests. Thread-safe."""

    def __init__(self, bytes_max: int = BYTES_MAX):
        self._bodies: RecentlyUsed[tuple[str, str], bytes] = RecentlyUsed(bytes_max)

    def answer(self, request: Request, tag: str, make: Callable[[], bytes]) -> Response:
        """Return the JSON response under ``tag``, from the cache or made by ``make``."""
        query = request.scope["query_string"].decode("latin-1")
        asked = f"{places.place_of(request)} {request.scope['path']}?{query}"
        body = self.get(tag, asked)
        if body is None:
            body = make()
            self.keep(tag, asked, body)
        response = Response(body, media_type="application/json")
        conditional.mark(response, tag)
        return response

    def forget(self) -> None:
        """Remove every body."""
        self._bodies.forget()

    def get(self, tag: str, asked: str) -> bytes | None:
        """Return the cached body, or None."""
        return self._bodies.get((tag, asked))

    def keep(self, tag: str, asked: str, body: bytes) -> None:
        """Store a body, unless it is larger than a quarter of the cache."""
        self._bodies.keep((tag, asked), body, len(body))
