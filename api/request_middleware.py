"""Middleware around every request and response.

* ``X-Request-Id``: the client's own id if it is a short plain word, otherwise a new one. Every log
  record about the request and every problem document contains it.
* Unhandled exceptions become 500 problem documents here, inside Starlette's own handler. Neither
  message nor traceback reaches the client; both are logged.
* Responses carry the state of the client's quota, if there is one (``api.auth.quotas``).
* Requests are counted by status and duration (``api.telemetry``).
* An error response is often sent before the body has arrived. If a connection is closed with unread
  bytes, the kernel resets it, and the client reports "connection reset" instead of the error. A
  bounded rest of the body is therefore read first.

Not here: expected errors (``api.http.problems``).
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any, Final

import structlog
import uuid_utils
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lockstep.api.http.problems import internal_error, problem_response
from lockstep.api.telemetry import ApiMetrics
from lockstep.storage.people import credentials

REQUEST_ID: Final = re.compile(r"^[A-Za-z0-9._-]{1,64}$")
REST_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of a rejected body that are read and dropped. The connection is closed after more than
that."""
REST_SECONDS_MAX: Final = 5.0
SLOW_SECONDS: Final = 1.0
"""Slower requests are logged."""

log = structlog.get_logger("api.requests")


class RequestMiddleware:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, telemetry: ApiMetrics):
        self.app = app
        self.telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send)
        self.telemetry.in_progress.inc()
        try:
            # Every log record of this context contains the request id.
            with structlog.contextvars.bound_contextvars(request_id=exchange.request_id):
                await exchange.run(self.app)
        finally:
            self.telemetry.in_progress.dec()
            self.telemetry.answered(
                exchange.route, scope["method"], exchange.status, exchange.seconds
            )


class _Exchange:
    """One request and its response."""

    def __init__(self, scope: Scope, receive: Receive, send: Send):
        headers = Headers(scope=scope)
        asked = headers.get("x-request-id", "")
        self.request_id = asked if REQUEST_ID.fullmatch(asked) else str(uuid_utils.uuid7())
        scope.setdefault("state", {})["request_id"] = self.request_id
        self.scope = scope
        self._receive = receive
        self._send = send
        self._started_at = time.monotonic()
        self.status: int | None = None
        self.seconds: float | None = None
        """Seconds until the response started."""
        # A client that waits for "100 Continue" has not sent its body. Reading it would request it.
        self._body_pending = "expect" not in headers and (
            headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        )

    @property
    def route(self) -> str:
        """Template of the route, once the router has matched it; ``none`` before."""
        return str(getattr(self.scope.get("route"), "path", "none"))

    async def run(self, app: ASGIApp) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        except ClientDisconnect:
            self._say("caller went away")
            return
        except Exception as error:  # noqa: BLE001 -- outermost handler of unexpected exceptions
            self._say("request failed", error)
            if self.status is None:
                response = problem_response(
                    internal_error(self.request_id), instance=self.request_id
                )
                await response(self.scope, self.receive, self.send)
            return
        self._say("request")

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._body_pending = False
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.seconds = time.monotonic() - self._started_at
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self.request_id
            headers.update(self.scope["state"].get("quota", {}))
            if message["status"] >= 400 and self._body_pending:
                await self._read_rest()
        await self._send(message)

    async def _read_rest(self) -> None:
        read = 0
        try:
            async with asyncio.timeout(REST_SECONDS_MAX):
                while self._body_pending and read <= REST_BYTES_MAX:
                    read += len((await self.receive()).get("body", b""))
        except TimeoutError:
            return

    def _say(self, event: str, error: Exception | None = None) -> None:
        """Log requests that are not GET or HEAD, that failed with a 5xx, or that were slow.

        Other requests, such as polling, would flood the log.
        """
        seconds = time.monotonic() - self._started_at
        about: dict[str, Any] = {
            "request_id": self.request_id,
            "method": self.scope["method"],
            "path": credentials.masked(self.scope["path"]),
            "status": self.status,
            "actor": self.scope["state"].get("actor"),
            "seconds": round(seconds, 4),
        }
        if error is not None:
            log.error(event, **about, exc_info=error)
        elif self.status is not None and self.status >= 500:
            log.warning(event, **about)
        elif self.scope["method"] not in {"GET", "HEAD"} or seconds > SLOW_SECONDS:
            log.info(event, **about)
