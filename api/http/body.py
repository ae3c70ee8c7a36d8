"""Strict decoding of request bodies.

The size is checked while the bytes arrive. A body is never held in memory beyond its limit, with a
``Content-Length`` or in chunks. JSON is decoded strictly, because each leniency causes a later
failure: a duplicate name hides a value, ``NaN`` and ``1e999`` cannot be encoded as JSON again, and
a lone surrogate or a NUL cannot be stored.

Not here: validation of the document (``domain.spec.reading``).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import AsyncIterator
from email.message import Message
from typing import Annotated, Any, Final, NamedTuple, TypeVar

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from lockstep.api.http.addresses import parameter_fields
from lockstep.api.http.problems import wrong_parameters
from lockstep.domain import limits
from lockstep.domain.errors import ErrorCode, FieldError, LockstepError
from lockstep.domain.spec.reading import field_errors, invalid

NESTING_MAX: Final = 64
"""Maximum nesting depth of objects and arrays. A spec needs six levels."""
_A_SPEC: Final = (
    'send the spec as JSON, such as {"name": "first", "kind": "script", "script": {"command": '
    '["/srv/train.py"]}}'
)

_SMALLER: Final = {
    "a job spec": "move the data to files or to the code folder, and give their paths in the spec",
    "a code archive": "remove data and environments from the code folder",
}
"""Advice for a body that is too large."""


class JsonBody(NamedTuple):
    """Decoded document with a digest of its content."""

    document: Any
    fingerprint: str
    """SHA-256 of the document with sorted keys and without spaces: equal for equivalent bodies."""


async def read_bounded(request: Request, bytes_max: int, what: str) -> AsyncIterator[bytes]:
    """Yield the chunks of a body of at most ``bytes_max`` bytes.

    Raises
    ------
    LockstepError
        ``too_large``; before the first chunk if the request has a ``Content-Length``.
    """
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said) > bytes_max:
        raise _too_large(what, bytes_max, f"{int(said)} bytes")
    read = 0
    async for chunk in request.stream():
        read += len(chunk)
        if read > bytes_max:
            raise _too_large(what, bytes_max, f"more than {bytes_max} bytes")
        if chunk:
            yield chunk


async def refuse_body(request: Request) -> None:
    """Refuse a body where none is read, such as ``{"now": true}`` of a cancel (a dependency).

    Raises
    ------
    LockstepError
        ``invalid``, with the parameters that the address may have.
    """
    route: APIRoute = request.scope["route"]
    declared = route.body_field is not None or "requestBody" in (route.openapi_extra or {})
    if declared or request.method in {"GET", "HEAD"} or not _has_body(request):
        return
    names = ", ".join(sorted(parameter_fields(route)))
    advice = f"send {names} in the query of the address" if names else "send it without a body"
    raise wrong_parameters((FieldError("/body", "this request takes no body", None, advice),))


def _has_body(request: Request) -> bool:
    length = request.headers.get("content-length", "0")
    return "transfer-encoding" in request.headers or length != "0"


def check_media_type(request: Request, accepted: frozenset[str]) -> None:
    """Reject a body with a missing or unexpected media type.

    A web page of any origin can send such a body without a CORS preflight.
    """
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    first = min(accepted)
    if given not in accepted and (given or _has_body(request)):
        found = f"is {given!r}" if given else "has no Content-Type"
        raise LockstepError(
            ErrorCode.MEDIA_TYPE,
            f"the body {found}; expected {' or '.join(sorted(accepted))}; nothing was written",
            next_step=f"send Content-Type: {first}",
        )
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise LockstepError(
            ErrorCode.MEDIA_TYPE,
            f"the body is encoded with {encoding!r}; expected no Content-Encoding; nothing was "
            f"written",
            next_step="send the body without Content-Encoding",
        )


def _check_charset(request: Request) -> None:
    """Reject a ``charset`` other than UTF-8, which the body would not be decoded with."""
    media_type = Message()
    media_type["Content-Type"] = request.headers.get("content-type", "")
    charset = str(media_type.get_param("charset", "utf-8"))
    if charset.lower() not in {"utf-8", "utf8"}:
        raise LockstepError(
            ErrorCode.MEDIA_TYPE,
            f"the body is declared as {charset[:40]!r}; expected UTF-8; nothing was written",
            next_step="send JSON in UTF-8, with Content-Type: application/json",
        )


async def read_json_bytes(request: Request, what: str = "the body") -> bytes:
    """Read the body of a request that is JSON of at most the size of a spec.

    ``what`` names it in errors.
    """
    check_media_type(request, frozenset({"application/json"}))
    _check_charset(request)
    chunks = [chunk async for chunk in read_bounded(request, limits.SPEC_BYTES_MAX, what)]
    return b"".join(chunks)


async def read_json(request: Request) -> JsonBody:
    """Read the JSON body of a request (a dependency)."""
    document = decode(await read_json_bytes(request, "a job spec"))
    return JsonBody(document, fingerprint(document))


M = TypeVar("M", bound=BaseModel)


def validated(model: type[M], example: str) -> Any:
    """Return the dependency that reads a JSON body as a model.

    Parameters
    ----------
    model : type of BaseModel
    example : str
        A valid body, for the advice about one that is none.
    """

    async def read(request: Request) -> M:
        document = decode(await read_json_bytes(request), next_step=f"send JSON such as {example}")
        try:
            return model.model_validate(document)
        except ValidationError as error:
            raise invalid(field_errors(error, model, document)) from None

    return Depends(read)


def described(model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI addition of a route that reads its body by :func:`validated`."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    content = {"application/json": {"schema": schema, "example": example}}
    return {"requestBody": {"required": True, "content": content}}


Document = Annotated[JsonBody, Depends(read_json)]


def decode(body: bytes, *, next_step: str = _A_SPEC) -> Any:
    """Decode JSON strictly.

    Parameters
    ----------
    body : bytes
    next_step : str
        Advice in the error for a body that is not such a document.

    Raises
    ------
    LockstepError
        ``malformed`` with the position of the first error; ``invalid`` for a JSON value that cannot
        be stored.
    """
    try:
        return _decoded(body)
    except LockstepError as error:
        error.next_step = error.next_step or next_step
        raise


def _decoded(body: bytes) -> Any:
    if not body.strip():
        raise _malformed("the body is empty; expected a JSON object")
    try:
        text = body.decode("utf-8-sig")
        document = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_whole,
        )
    except UnicodeDecodeError as error:
        raise _malformed(
            f"the body is not UTF-8: byte {body[error.start]:#04x} at offset {error.start}"
        ) from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        what = error.msg[:1].lower() + error.msg[1:].removesuffix(" starting at")
        raise _malformed(f"the body is not JSON: {what} at {place}") from None
    except RecursionError:
        raise _too_deep() from None
    _check_values(document)
    return document


def fingerprint(document: Any) -> str:
    """Return the SHA-256 of a document's content, in hex."""
    canonical = json.dumps(
        document, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    return hashlib.sha256(canonical.encode()).hexdigest()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise _malformed(f"the name {twice!r} occurs twice in one object; expected unique names")
    return found


def _no_constant(name: str) -> float:
    raise _malformed(f"{name} is not valid JSON; expected a finite number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _malformed(f"the number {text[:40]} exceeds the range of a float")
    return value


def _whole(text: str) -> int:
    # int() raises its own error for more than 4,300 digits. No value of the API exceeds 64 bits.
    if len(text) > 20:
        raise _malformed(f"the number {text[:20]}… has {len(text)} digits; expected at most 20")
    return int(text)


def _check_values(document: Any) -> None:
    """Reject text that a database cannot store, with a JSON pointer to it, and deeper nesting.

    The traversal is iterative: deep nesting must not exhaust the stack.
    """
    waiting: list[tuple[Any, tuple[str | int, ...]]] = [(document, ())]
    while waiting:
        value, location = waiting.pop()
        if len(location) > NESTING_MAX:
            raise _too_deep()
        if isinstance(value, dict):
            waiting.extend((inner, (*location, name)) for name, inner in value.items())
            for name in value:
                _check_text(name, location)
        elif isinstance(value, list):
            waiting.extend((inner, (*location, index)) for index, inner in enumerate(value))
        elif isinstance(value, str):
            _check_text(value, location)


def _check_text(text: str, location: tuple[str | int, ...]) -> None:
    if text.isascii() and "\0" not in text:
        return
    surrogate = any("\ud800" <= character <= "\udfff" for character in text)
    if surrogate or "\0" in text:
        what = "an unpaired surrogate" if surrogate else "a NUL character"
        pointer = "".join(f"/{str(part).encode(errors='replace').decode()}" for part in location)
        message = f"a text contains {what}: {text[:40]!a}"
        raise invalid((FieldError(pointer, message, ascii(text[:40]), "remove the character"),))


def _malformed(message: str) -> LockstepError:
    return LockstepError(ErrorCode.MALFORMED, f"{message}; nothing was written")


def _too_deep() -> LockstepError:
    return _malformed(f"the body nests more than {NESTING_MAX} levels of objects and lists")


def _too_large(what: str, bytes_max: int, got: str) -> LockstepError:
    return LockstepError(
        ErrorCode.TOO_LARGE,
        f"{what} is at most {bytes_max} bytes, got {got}; nothing was written",
        next_step=_SMALLER.get(what, "send a smaller body"),
    )
