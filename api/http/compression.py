"""Gzip compression of JSON responses: a list of jobs shrinks to a twelfth, a chart to a third.

It applies to responses to GET that have a JSON body of 1 KiB or more, sent in one message. Event
streams are not compressed, because events must not wait in a buffer. Responses to POST are not
compressed, because some contain tokens.

Not here: the dashboard's files, which are compressed at build time (``api.dashboard.files``).
"""

from __future__ import annotations

import asyncio
import gzip
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BYTES_MIN: Final = 1_024
"""A smaller response fits into one packet without compression."""
THREAD_BYTES_MIN: Final = 64 * 1_024
"""A thread compresses a body of this size or more, because that takes milliseconds."""
LEVEL: Final = 4
"""For a chart of 250 kB, level 4 is 3 % larger than level 9 and takes a quarter of the time."""


def takes_gzip(accepted: str) -> bool:
    """Return whether an ``Accept-Encoding`` header allows gzip."""
    for choice in accepted.lower().split(","):
        coding, _, weight = choice.partition(";")
        if coding.strip() == "gzip":
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


class Compression:
    """ASGI middleware that compresses large JSON responses for clients that accept gzip."""

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
                start = message  # held until the size of the body is known
                return
            if start is not None:
                held, start = start, None
                message = await _compressed(held, message, accepts)
                await send(held)
            await send(message)

        await self.app(scope, receive, compressing)


def _is_json(start: Message) -> bool:
    headers = Headers(raw=start["headers"])
    return (
        headers.get("content-type", "") == "application/json" and "content-encoding" not in headers
    )


async def _compressed(start: Message, body: Message, accepts: bool) -> Message:
    """Return the body message to send, and change the headers in ``start`` to match it."""
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
