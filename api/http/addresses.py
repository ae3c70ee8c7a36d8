"""Checks of an address that hold for every route under ``/v1``, before its parameters are read.

* Path and query are text in UTF-8 without NUL. The server would replace other bytes silently, and
  databases differ in what they do with a NUL: SQLite ends the text there, PostgreSQL refuses it.
* A parameter with one value occurs once. Of several values, FastAPI takes the last one silently.

Not here: the values themselves, which each route declares (``api.routes``), addresses that are too
long to be parsed (``api.protocol``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from inspect import isclass
from typing import Any, get_origin
from urllib.parse import unquote_to_bytes

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import BaseModel

from lockstep.api.http.problems import wrong_parameters
from lockstep.domain.errors import FieldError, pointer_of


async def check_address(request: Request) -> None:
    """Refuse an address that is no text, or repeats a parameter with one value (a dependency).

    Raises
    ------
    LockstepError
        ``invalid``, with a pointer to each wrong part.
    """
    # `async` although it awaits nothing: FastAPI runs a sync dependency in another thread.
    wrong = tuple(_not_text(request)) or tuple(_repeated(request))
    if wrong:
        raise wrong_parameters(wrong)


def _not_text(request: Request) -> Iterator[FieldError]:
    path = request.scope.get("raw_path") or request.scope["path"].encode()
    parts: list[tuple[tuple[str, ...], bytes]] = [(("path",), path)]
    for pair in request.scope["query_string"].replace(b"+", b" ").split(b"&"):
        name = unquote_to_bytes(pair.partition(b"=")[0]).decode(errors="replace")
        parts.append((("query", name), pair))
    for location, encoded in parts:
        message = _trouble(unquote_to_bytes(encoded))
        if message is not None:
            shown = encoded.decode(errors="replace")
            yield FieldError(
                pointer_of(location), message, shown, "send text, percent-encoded as UTF-8"
            )


def _trouble(raw: bytes) -> str | None:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        return f"is not UTF-8: byte {raw[error.start]:#04x}"
    return "contains a NUL character" if "\0" in text else None


def _repeated(request: Request) -> Iterator[FieldError]:
    counts = Counter(name for name, _ in request.query_params.multi_items())
    names = {name for name, count in counts.items() if count > 1}
    for name in sorted(names & _single_valued(request.scope["route"])):
        values = request.query_params.getlist(name)
        yield FieldError(
            pointer_of(("query", name)),
            f"expected one value, got {counts[name]}: {', '.join(map(repr, values))}"[:200],
            values[-1],
            f"send {name} once",
        )


def parameter_fields(route: APIRoute) -> dict[str, Any]:
    """Return the fields of a route's query parameters, by name."""
    fields: dict[str, Any] = {}
    for parameter in route.dependant.query_params:
        kind: Any = parameter.field_info.annotation
        grouped = isclass(kind) and issubclass(kind, BaseModel)
        fields |= kind.model_fields if grouped else {parameter.alias: parameter.field_info}
    return fields


def _single_valued(route: APIRoute) -> set[str]:
    """Return the query parameters of a route that are no lists."""
    fields = parameter_fields(route)
    return {name for name, field in fields.items() if get_origin(field.annotation) is not list}
