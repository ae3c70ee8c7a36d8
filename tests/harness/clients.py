"""HTTP client of an application in this process: one call to its event loop per request.

Starlette's own client makes about eight, each of which wakes the thread of the loop and waits for
it. A test that sends hundreds of requests spends half of its time there. Streamed answers
(``stream``) need them, and have them here too.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import Any
from urllib.parse import unquote

import anyio
import httpx2
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message, Scope

_WHOLE = "lockstep_whole"


class Client(TestClient):
    """Starlette's client, whose answers arrive whole unless they are streamed."""

    def __init__(
        self, app: ASGIApp, *, client: tuple[str, int] = ("testclient", 50000), **more: Any
    ) -> None:
        super().__init__(app, client=client, **more)
        raising = more.get("raise_server_exceptions", True)
        self._streamed, self._transport = self._transport, _Whole(self, client, raising)

    def send(self, request: httpx2.Request, *, stream: bool = False, **more: Any) -> Any:
        request.extensions = {**request.extensions, _WHOLE: not stream}
        return super().send(request, stream=stream, **more)


class _Whole(httpx2.BaseTransport):
    """Requests whose answer is complete when it is returned; others as Starlette sends them."""

    def __init__(self, client: Client, address: tuple[str, int], raising: bool) -> None:
        self._client, self._address, self._raising = client, address, raising

    def close(self) -> None:
        self._client._streamed.close()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        if not request.extensions[_WHOLE]:
            return self._client._streamed.handle_request(request)
        exchange = _Exchange(request)
        scope = self._scope(request)
        with (
            nullcontext() if self._raising else suppress(Exception),
            self._client._portal_factory() as portal,
        ):
            portal.call(exchange.run, self._client.app, scope)
        assert exchange.status is not None, "the application sent no response"
        return httpx2.Response(
            exchange.status,
            headers=exchange.headers,
            stream=httpx2.ByteStream(b"" if request.method == "HEAD" else exchange.body),
            request=request,
        )

    def _scope(self, request: httpx2.Request) -> Scope:
        url = request.url
        return {
            "type": "http",
            "http_version": "1.1",
            "method": request.method,
            "path": unquote(url.path),
            "raw_path": url.raw_path.split(b"?", 1)[0],
            "root_path": "",
            "scheme": url.scheme,
            "query_string": url.query,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": self._address,
            "server": [url.host, url.port or {"http": 80, "https": 443}[url.scheme]],
            "state": self._client.app_state.copy(),
        }


class _Exchange:
    """One request and its answer, in the thread of the event loop."""

    def __init__(self, request: httpx2.Request) -> None:
        self._request = request
        self._sent = False
        self._over: anyio.Event | None = None
        self._complete = False
        self.status: int | None = None
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""

    async def run(self, app: Any, scope: Scope) -> None:
        await app(scope, self._receive, self._send)

    async def _receive(self) -> Message:
        if not self._sent:
            self._sent = True
            return {"type": "http.request", "body": self._request.read()}
        if not self._complete:
            self._over = self._over or anyio.Event()
            await self._over.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        # Other requests run between two parts of an answer, as on a network.
        await anyio.lowlevel.checkpoint()
        if message["type"] == "http.response.start":
            assert self.status is None, "a second response"
            self.status, self.headers = message["status"], list(message.get("headers", ()))
            return
        assert message["type"] == "http.response.body", message["type"]
        assert self.status is not None, "a body before its response"
        assert not self._complete, "a body after the response was complete"
        self.body += message.get("body", b"")
        if not message.get("more_body", False):
            self._complete = True
            if self._over is not None:
                self._over.set()
