"""The place of the databases in every entity tag under ``/v1``.

Tags are made of counters. A backup that is restored sets them back, and they reach former values
with other data. So each weak tag also has the place that its data was read from: a client with a
tag of another place gets the whole response, and the cache of responses makes a new one. Cursors of
points have it, too (``storage.series.tails``).

Not here: the place (``storage.control.places``), the counters (``api.http.tags``), strong tags,
which are digests of contents.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

import anyio
import anyio.to_thread
from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CHECKED_SECONDS: Final = 1.0
"""The place is read at most so often, and only while there are requests."""
_KEY: Final = "lockstep.place"


def place_of(request: Request) -> str:
    """Return the place that a request reads from."""
    found: str = request.scope.get(_KEY, "")
    return found


class PlaceInTags:
    """ASGI middleware that adds the place to the tags of responses and takes it from requests."""

    def __init__(
        self,
        app: ASGIApp,
        read: Callable[[], str],
        changed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ):
        self.app, self._read, self._changed, self._clock = app, read, changed, clock
        self._place = ""
        self._due_at = 0.0
        self._first_read = anyio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != "http"
            or scope["method"] != "GET"
            or not scope["path"].startswith("/v1/")
        ):
            await self.app(scope, receive, send)
            return
        # Read before the data: a response may have an older place than its data, never a newer one.
        place = scope[_KEY] = await self._current()
        end = f'@{place}"'
        _take(MutableHeaders(scope=scope), end)

        async def placed(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add(MutableHeaders(scope=message), end)
            await send(message)

        await self.app(scope, receive, placed)

    async def _current(self) -> str:
        if not self._place:
            async with self._first_read:
                if not self._place:
                    await self._look()
        elif self._clock() >= self._due_at:
            await self._look()
        return self._place

    async def _look(self) -> None:
        self._due_at = math.inf  # one at a time: others go on with the known one
        try:
            place = await anyio.to_thread.run_sync(self._read)
            if place != self._place:
                self._changed()
            self._place = place
        finally:
            self._due_at = self._clock() + CHECKED_SECONDS


def _take(headers: MutableHeaders, end: str) -> None:
    """Leave strong tags in ``If-None-Match``, and weak ones with this end, without it."""
    asked = [tag.strip() for line in headers.getlist("if-none-match") for tag in line.split(",")]
    if not asked:
        return
    del headers["if-none-match"]
    held = [
        f'{tag.removesuffix(end)}"' if tag.endswith(end) else tag
        for tag in asked
        if tag.endswith(end) or not (tag.startswith("W/") or "@" in tag)
    ]
    if held:
        headers["if-none-match"] = ", ".join(held)


def _add(headers: MutableHeaders, end: str) -> None:
    tag = headers.get("etag", "")
    if tag.startswith("W/"):
        headers["etag"] = tag.removesuffix('"') + end
