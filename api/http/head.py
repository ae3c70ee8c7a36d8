"""HEAD, wherever there is GET: the same status and headers, without the body.

Not here: the methods that an address allows (``api.http.problems``).
"""

from __future__ import annotations

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Head:
    """ASGI middleware that runs a HEAD request as GET, up to the headers of the response."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        # A copy: the server reads the method of its own scope, to send no body.
        as_get = {**scope, "method": "GET"}
        with anyio.CancelScope() as rest:

            async def headers_only(message: Message) -> None:
                if message["type"] == "http.response.start":
                    await send(message)
                    await send({"type": "http.response.body"})
                    # A log stream would go on until the end of its job, and a checkpoint's file
                    # would be read in vain.
                    rest.cancel()

            await self.app(as_get, receive, headers_only)
        if "route" in as_get:
            scope["route"] = as_get["route"]  # counted by the middleware around this one
