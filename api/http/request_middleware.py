"""What every request and response carries: an id, an end to what nobody caught, and a body read to its end.

* ``X-Request-Id``: the caller's own if it is a short plain word, otherwise a new one. It is in every log line about the
  request, and in every problem document.
* An exception that no handler knows becomes a 500 problem here, inside Starlette's own catch-all, so that neither its
  message nor a traceback reaches the caller; the log has both.
* How the caller stands with its quota, where it has one (``api.auth.quotas``).
* How it was answered is counted (``api.telemetry``).
* A refusal is often written before the body has arrived. Closing a connection with unread bytes makes the kernel reset
  it, and the caller sees "connection reset" in place of the reason. So a bounded rest of the body is read first.

Not here: refusals that were foreseen (``api.http.problems``).
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
from lockstep.api.telemetry import Telemetry

REQUEST_ID: Final = re.compile(r"^[A-Za-z0-9._-]{1,64}$")
REST_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of a refused body, read and dropped. A caller who sends more sees its connection closed."""
REST_SECONDS_MAX: Final = 5.0
SLOW_SECONDS: Final = 1.0
"""A request that takes longer is worth a line."""

log = structlog.get_logger("api.requests")


class Envelope:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry):
        self.app = app
        self.telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send)
        self.telemetry.in_progress.inc()
        try:
            # Every log line that is written on the way carries the id, whoever writes it.
            with structlog.contextvars.bound_contextvars(request_id=exchange.request_id):
                await exchange.run(self.app)
        finally:
            self.telemetry.in_progress.dec()
            self.telemetry.answered(exchange.route, scope["method"], exchange.status, exchange.seconds)


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
        """Until the answer began."""
        # A caller that waits for "100 Continue" has not sent its body, and must not be asked for it now.
        self._body_pending = "expect" not in headers and (
            headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        )

    @property
    def route(self) -> str:
        """The template of the address that was asked, once the router has found it."""
        return str(getattr(self.scope.get("route"), "path", "none"))

    async def run(self, app: ASGIApp) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        except ClientDisconnect:
            self._say("caller went away")
            return
        except Exception as error:  # noqa: BLE001 -- the boundary: what arrives here was foreseen by nobody
            self._say("request failed", error)
            if self.status is None:
                response = problem_response(internal_error(self.request_id), instance=self.request_id)
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
        """One line per request that changed something, failed, or was slow: polling would drown the rest."""
        seconds = time.monotonic() - self._started_at
        about: dict[str, Any] = {
            "request_id": self.request_id,
            "method": self.scope["method"],
            "path": self.scope["path"],
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
