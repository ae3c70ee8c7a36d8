"""Errors as RFC 9457 problem documents, and the table from error codes to HTTP statuses.

A problem document names the wrong value, the expected one and the next step. An unexpected
exception becomes a 500 that contains only the request id; its cause is logged.

Not here: catching unhandled exceptions (``api.request_middleware``), driver exceptions
(``storage.db.driver_errors``).
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from lockstep.domain.errors import ErrorCode, FieldError, LockstepError, pointer_of
from lockstep.domain.spec.fields import PATTERNS
from lockstep.domain.spec.reading import explained
from lockstep.domain.training.metrics import jsonable
from lockstep.domain.views import FieldProblem, Problem
from lockstep.storage.jobs import cursors
from lockstep.storage.logs import log_pages
from lockstep.storage.series import tails

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final[Mapping[ErrorCode, int]] = {
    ErrorCode.UNAVAILABLE: 2,
    ErrorCode.STORAGE_FULL: 60,
}
"""Delay before a retry. A database restarts within seconds; a full disk needs an operator."""

PROBLEMS: Final[Mapping[ErrorCode, tuple[int, str]]] = {
    ErrorCode.INVALID: (422, "Invalid value"),
    ErrorCode.MALFORMED: (400, "The request cannot be read"),
    ErrorCode.ADDRESS_TOO_LONG: (414, "The address is too long"),
    ErrorCode.MEDIA_TYPE: (415, "Unsupported media type"),
    ErrorCode.METHOD: (405, "Method not allowed"),
    ErrorCode.NOT_YET: (422, "Not available in this version"),
    ErrorCode.NOT_FOUND: (404, "Not found"),
    ErrorCode.CONFLICT: (409, "Conflict with the current state"),
    ErrorCode.CONDITION: (412, "The condition does not hold"),
    ErrorCode.UNAUTHENTICATED: (401, "Missing or invalid token"),
    ErrorCode.FORBIDDEN: (403, "Not allowed"),
    ErrorCode.TOO_LARGE: (413, "Larger than the limit"),
    ErrorCode.RANGE: (416, "Range not satisfiable"),
    ErrorCode.TOO_MANY_REQUESTS: (429, "Too many requests"),
    ErrorCode.UNAVAILABLE: (503, "Temporarily unavailable"),
    ErrorCode.STORAGE_FULL: (507, "The disk is full"),
    ErrorCode.INTERNAL: (500, "Internal error"),
}
"""HTTP status and title of each code."""

_CURSOR: Final = "a cursor of an earlier answer"
FORMS: Final = {
    **PATTERNS,
    r"^[!-~]+$": "visible ASCII characters",
    r"^[^=]+=": "key=value",
    r"^[0-9a-f]{16}$": "an id of 16 lower-case hexadecimal digits, as the list has it",
    r"^[0-9a-f]{64}$": "a SHA-256 as 64 lower-case hexadecimal digits",
    r"^([0-9]{1,10}|best|last)$": "a step, best or last",
    cursors.CURSOR: _CURSOR,
    log_pages.CURSOR: _CURSOR,
    tails.CURSOR: _CURSOR,
    tails.LIVE_CURSOR: _CURSOR,
}
"""Description of each pattern of a parameter."""

_DESCRIPTIONS: Final[Mapping[int, str]] = {
    400: "The body is not valid JSON.",
    401: "The bearer token is missing or wrong.",
    403: "The right that `detail` names is missing. Nothing was written.",
    404: "The job or upload does not exist.",
    409: "Conflict with the current state. Nothing was changed.",
    413: "The body is larger than the limit. Nothing was written.",
    415: "The media type of the body is not supported.",
    416: "The file ends before the first byte that `Range` asks for; `Content-Range` says where.",
    422: "Invalid value; `errors` points to each. Nothing was written.",
    429: (
        "The token exceeded its quota. The request was not processed; try again after "
        "`Retry-After` seconds."
    ),
    500: "Internal error; the log has the cause under the request's id.",
    503: "The database or the store does not answer, or there are too many concurrent requests. "
    "Nothing was written; try again after `Retry-After` seconds.",
    507: (
        "The disk is full. Nothing was written; free space, then try again after `Retry-After` "
        "seconds."
    ),
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the ``responses`` of a route under ``/v1``.

    They are these error statuses and those of every such route.
    """
    return described(*statuses, 401, 422, 429, 500, 503)


def described(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the ``responses`` of a route with these error statuses only."""
    return {
        status: {"model": Problem, "description": _DESCRIPTIONS[status]}
        for status in sorted({*statuses})
    }


def install(app: FastAPI) -> None:
    """Register the handlers that answer errors with problem documents."""
    app.add_exception_handler(LockstepError, _lockstep_error)
    app.add_exception_handler(RequestValidationError, _parameters)
    app.add_exception_handler(HTTPException, _routing)


def problem_of(error: LockstepError, *, instance: str | None) -> Problem:
    """Return the problem document of an error; ``instance`` is the request id."""
    status, title = PROBLEMS[error.code]
    return Problem(
        type=f"urn:lockstep:problem:{error.code.value}",
        title=title,
        status=status,
        detail=error.message,
        code=error.code,
        next_step=error.next_step,
        errors=[_field_problem(field) for field in error.fields],
        instance=f"urn:lockstep:request:{instance}" if instance else None,
    )


def problem_response(
    error: LockstepError, *, instance: str | None, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the response to a failed request.

    Parameters
    ----------
    error : LockstepError
    instance : str or None
        Request id.
    headers : mapping, optional
        Headers in addition to those of the error code.
    """
    problem = problem_of(error, instance=instance)
    sent = {"Cache-Control": "no-store", **(headers or {})}
    if error.code is ErrorCode.UNAUTHENTICATED:
        sent["WWW-Authenticate"] = 'Bearer realm="lockstep"'
    retry_after = error.retry_after_seconds or RETRY_AFTER_SECONDS.get(error.code)
    if retry_after is not None:
        sent["Retry-After"] = str(retry_after)
    return Response(
        problem.model_dump_json(), status_code=problem.status, media_type=MEDIA_TYPE, headers=sent
    )


def internal_error(request_id: str) -> LockstepError:
    """Return the error for an unhandled exception.

    It contains the request id and no details.
    """
    return LockstepError(
        ErrorCode.INTERNAL,
        "internal error; it is unknown whether anything was written",
        next_step=f"find request {request_id} in the log of the api, and report the error",
    )


def _field_problem(field: FieldError) -> FieldProblem:
    return FieldProblem(
        pointer=field.pointer,
        message=field.message,
        value=_shown(field.value),
        next_step=field.next_step,
    )


def _shown(value: Any) -> Any:
    """Return a wrong value for the problem document: at most 200 characters, and valid JSON."""
    if isinstance(value, float):
        return jsonable(value)
    if value is None or isinstance(value, bool | int):
        return value
    text = value if isinstance(value, str) else repr(value)
    text = text.encode(errors="replace").decode()
    return text if len(text) <= 200 else f"{text[:197]}..."


async def _lockstep_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, LockstepError)
    return problem_response(error, instance=request_id_of(request))


async def _parameters(request: Request, error: Exception) -> Response:
    """Handle an invalid path, query or header value.

    The pointer starts with the parameter's location.
    """
    assert isinstance(error, RequestValidationError)
    refused = wrong_parameters(tuple(_parameter_error(line) for line in error.errors()))
    return problem_response(refused, instance=request_id_of(request))


def wrong_parameters(fields: tuple[FieldError, ...]) -> LockstepError:
    """Return the error about wrong parts of an address or wrong headers."""
    first = fields[0]
    message = f"{first.pointer.lstrip('/').replace('/', ' parameter ', 1)}: {first.message}"
    return LockstepError(ErrorCode.INVALID, message, next_step=first.next_step, fields=fields)


def _parameter_error(line: Mapping[str, Any]) -> FieldError:
    location = tuple(line["loc"])
    if line["type"] == "extra_forbidden":
        return FieldError(
            pointer_of(location),
            "unknown parameter",
            line["input"],
            "remove it; /docs lists the parameters",
        )
    if line["type"] == "missing":
        step = "add it; /docs lists the parameters"
        return FieldError(pointer_of(location), "is required", None, step)
    message, step = explained(line, FORMS) or (
        _own_words(line),
        "see /docs for the expected values",
    )
    return FieldError(
        pointer_of(location), f"{message}, got {line['input']!r}", line["input"], step
    )


def _own_words(line: Mapping[str, Any]) -> str:
    message = str(line["msg"]).removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


async def _routing(request: Request, error: Exception) -> Response:
    """Handle errors of the router: unknown addresses and methods."""
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.url.path}"
    if error.status_code == HTTPStatus.NOT_FOUND:
        refused = LockstepError(
            ErrorCode.NOT_FOUND,
            f"no route for {where}",
            next_step="/docs lists all routes; their prefix is /v1",
        )
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(sorted(_methods(request)))
        refused = LockstepError(
            ErrorCode.METHOD,
            f"method not allowed: {where}; expected {allowed}",
            next_step=f"use {allowed}",
        )
        return problem_response(
            refused, instance=request_id_of(request), headers={"Allow": allowed}
        )
    else:
        # Lockstep raises no HTTPException. Any other status comes from a library and is a defect.
        refused = internal_error(request_id_of(request) or "")
    return problem_response(refused, instance=request_id_of(request), headers=error.headers)


def _methods(request: Request) -> set[str]:
    """Return the methods of an address over all its routes.

    The router lists only those of the first route. ``api.http.head`` adds HEAD to GET.
    """
    found: set[str] = set()
    for route in request.app.routes:
        match, _ = route.matches(request.scope)
        if match is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return found | ({"HEAD"} if "GET" in found else set())


def request_id_of(request: Request) -> str | None:
    """Return the id that ``api.request_middleware`` assigned to the request."""
    state = request.scope.get("state") or {}
    found: str | None = state.get("request_id")
    return found
