"""JSON answers as gzip: a list of jobs is a twelfth of its size, a chart a third.

Compressed are GETs that are answered with one body of JSON of a kilobyte or more. A stream of events is sent as it is,
because it must not wait for more to compress. Answers to POST are left alone: among them are tokens.

Not here: the dashboard's files, which are compressed when they are built (``api.dashboard.files``).
"""

from __future__ import annotations

import asyncio
import gzip
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BYTES_MIN: Final = 1_024
"""A smaller answer fits into one packet anyway."""
THREAD_BYTES_MIN: Final = 64 * 1_024
"""From here on compressing takes milliseconds, in which the event loop answers other requests."""
LEVEL: Final = 4
"""Of a chart of 250 kB level 4 leaves 3 % more than level 9, in a quarter of the time."""


def takes_gzip(accepted: str) -> bool:
    """Return true if an ``Accept-Encoding`` header allows gzip."""
    for choice in accepted.lower().split(","):
        coding, _, weight = choice.partition(";")
        if coding.strip() == "gzip":
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


class Compression:
    """ASGI middleware that compresses what is worth it, for callers that accept it."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self.app(scope, receive, send)
            return
        accepts = takes_gzip(Headers(scope=scope).get("accept-encoding", ""))
        start: Message | None = None

        async def compressing(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_json(message):
                start = message  # held until it is known how long the body is
                return
            if start is not None:
                held, start = start, None
                message = await _compressed(held, message, accepts)
                await send(held)
            await send(message)

        await self.app(scope, receive, compressing)


def _is_json(start: Message) -> bool:
    headers = Headers(raw=start["headers"])
    return headers.get("content-type", "") == "application/json" and "content-encoding" not in headers


async def _compressed(start: Message, body: Message, accepts: bool) -> Message:
    """Return the body to send, and adapt the headers in ``start`` to it."""
    content: bytes = body.get("body", b"")
    if len(content) < BYTES_MIN or body.get("more_body", False):
        return body
    headers = MutableHeaders(raw=start["headers"])
    headers.add_vary_header("Accept-Encoding")
    if not accepts:
        return body
    if len(content) < THREAD_BYTES_MIN:
        packed = gzip.compress(content, LEVEL, mtime=0)
    else:
        packed = await asyncio.to_thread(gzip.compress, content, LEVEL, mtime=0)
    headers["Content-Encoding"] = "gzip"
    headers["Content-Length"] = str(len(packed))
    start["headers"] = headers.raw
    return {**body, "body": packed}
