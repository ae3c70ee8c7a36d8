"""Bodies that are objects of texts, such as passwords: no error repeats a value.

Not here: bodies with a model (``api.http.body``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import Request

from lockstep.api.http.body import decode, read_json_bytes
from lockstep.domain.errors import ErrorCode, FieldError, LockstepError
from lockstep.domain.spec.reading import invalid

Texts = dict[str, str]


def body_of(**chars_max: int) -> dict[str, Any]:
    """Return the description of a body that is an object of texts."""
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": list(chars_max),
        "properties": {
            name: {"type": "string", "maxLength": chars, "pattern": r"^[^\x00]*$"}
            for name, chars in chars_max.items()
        },
    }
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}


def texts(described: dict[str, Any]) -> Callable[[Request], Any]:
    """Return the dependency that reads such a body. Its errors contain no value."""
    properties = described["requestBody"]["content"]["application/json"]["schema"]["properties"]

    async def read(request: Request) -> Texts:
        raw = await read_json_bytes(request)
        try:
            found = decode(raw, next_step=f"send an object with {' and '.join(properties)}")
        except LockstepError as error:
            if error.code is not ErrorCode.INVALID:
                raise
            raise wrong(error.fields[0].pointer, "contains a NUL or half a character") from None
        if not isinstance(found, dict) or found.keys() != properties.keys():
            raise wrong("", f"expected an object with {' and '.join(properties)}, and no more")
        for name, limits in properties.items():
            value, most = found[name], limits["maxLength"]
            if not isinstance(value, str) or len(value) > most:
                raise wrong(f"/{name}", f"expected a text of at most {most} characters")
        return found

    return read


def wrong(pointer: str, message: str) -> LockstepError:
    """Return the refusal of a body, or of one of its texts, without the value."""
    return invalid((FieldError(pointer, message, None, "see /docs for the expected values"),))
