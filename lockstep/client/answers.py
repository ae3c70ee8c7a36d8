"""Errors and cached answers of the HTTP API."""

from __future__ import annotations

from typing import NamedTuple

import httpx2
from pydantic import BaseModel, ValidationError

from lockstep.client.errors import ClientError, UsageError, refusal
from lockstep.client.tls import scheme_error
from lockstep.domain.views import Problem


class CachedResponse(NamedTuple):
    """An answer that may be asked for again."""

    etag: str
    answer: BaseModel
    size: int
    """Bytes, as it came."""


def no_address(url: str, error: Exception) -> UsageError:
    return UsageError(
        f"{url!r} is not a server address: {error}", next_step="write http://HOST:PORT"
    )


def why_of(error: httpx2.TransportError) -> str:
    if isinstance(error, httpx2.ConnectError):
        text = str(error)
        return "connection refused" if "refused" in text else text or "no connection"
    if isinstance(error, httpx2.TimeoutException):
        return "no answer in time"
    return "the connection broke"


def refused(url: str, response: httpx2.Response) -> ClientError:
    """The exception for an answer that is an error.

    Some servers (nginx, Go's) answer plain HTTP on a TLS port with a page and 400.
    """
    is_page = response.status_code == 400 and "json" not in response.headers.get("Content-Type", "")
    return (is_page and scheme_error(url, None)) or refusal(problem_of(response))


def problem_of(response: httpx2.Response) -> Problem:
    """The problem document of an error; an answer that is none (a proxy's page) becomes one."""
    try:
        return Problem.model_validate_json(response.content)
    except ValidationError:
        words = f"{response.status_code} {response.reason_phrase}".strip()
        return Problem(
            title=words,
            status=response.status_code,
            detail=(
                f"{response.request.method} {response.request.url} failed with {words}, without a "
                f"reason"
            ),
            code="",
        )
