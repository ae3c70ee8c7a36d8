"""Problem documents for bytes that are no HTTP request, and for addresses that are too long.

Such bytes never reach the application. Uvicorn answers them with 400 as plain text.

Not here: all other errors (``api.http.problems``).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import uuid_utils
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lockstep.api.http.problems import problem_response
from lockstep.domain.errors import ErrorCode, LockstepError

ADDRESS_BYTES_MAX: Final = 65_535
"""Largest address that the parser takes apart."""
LINGER_SECONDS: Final = 2.0
"""Time for the client to read the answer. A connection closed with unread bytes would be reset, and
the client would report that instead of the answer."""


class AddressTooLongError(Exception):
    """The address exceeds the limit. The parser ends, and ``send_400_response`` answers."""


class ProblemProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, with problem documents for requests that it cannot parse."""

    url = b""
    _is_refused = False

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > ADDRESS_BYTES_MAX:
            raise AddressTooLongError

    def data_received(self, data: bytes) -> None:
        if not self._is_refused:  # the rest of a refused request is dropped
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 -- uvicorn's signature
        self._is_refused = True
        request_id = str(uuid_utils.uuid7())
        answer = problem_response(
            self._refusal(), instance=request_id, headers={"X-Request-Id": request_id}
        )
        fields = [*self.server_state.default_headers, *answer.raw_headers]
        lines = [b"%s: %s\r\n" % field for field in (*fields, (b"connection", b"close"))]
        status = HTTPStatus(answer.status_code)
        start = f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
        self.transport.write(b"".join((start, *lines, b"\r\n", answer.body)))
        self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _refusal(self) -> LockstepError:
        if len(self.url) > ADDRESS_BYTES_MAX:
            return LockstepError(
                ErrorCode.ADDRESS_TOO_LONG,
                f"the address is longer than {ADDRESS_BYTES_MAX} bytes; nothing was written",
                next_step="send fewer or shorter parameters, in several requests",
            )
        return LockstepError(
            ErrorCode.MALFORMED,
            "the request is not valid HTTP/1.1; nothing was written",
            next_step="send plain HTTP/1.1, percent-encoded and without TLS; use an HTTP library",
        )
