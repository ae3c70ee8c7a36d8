"""Polling that costs little: entity tags, and 304 where nothing has changed (RFC 9110 §13).

A tag is made from counters that change whenever the answer may (a job's version, its progress sequence), so an unchanged
answer is recognised before it is built. They are read before what is answered: a change in between is then sent under the
old tag, and simply read again.

Not here: which counters (``api.jobs.views.job_tag``, ``api.http.tags``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final

from fastapi import Request, Response

from lockstep.domain.version import VERSION

ETAG: Final[dict[str, Any]] = {
    "ETag": {"description": "Changes with the answer; send it as `If-None-Match`.", "schema": {"type": "string"}}
}
RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"headers": ETAG},
    304: {"description": "It has not changed since the answer that `If-None-Match` names.", "headers": ETAG},
}
"""For the description of a route that answers so."""


def tag_of(*parts: object) -> str:
    """A weak entity tag. Weak, because two answers under one tag mean the same but may differ in a clock reading.

    Of this version: the next may show more of what has not changed.
    """
    return f'W/"{VERSION}.' + ".".join("-" if part is None else str(part) for part in parts) + '"'


def digest(marks: Iterable[object]) -> str:
    """A part of a tag that stands for any number of marks."""
    return hashlib.blake2b(repr(list(marks)).encode(), digest_size=12).hexdigest()


def unchanged(request: Request, tag: str) -> Response | None:
    """The answer 304 if the caller already holds what ``tag`` names, else None."""
    asked = request.headers.getlist("if-none-match")
    held = [candidate.strip() for header in asked for candidate in header.split(",")]
    # If-None-Match compares weakly: W/"a" and "a" are the same.
    if "*" in held or any(candidate.removeprefix("W/") == tag.removeprefix("W/") for candidate in held):
        return Response(status_code=304, headers={"ETag": tag, "Cache-Control": "no-cache"})
    return None


def mark(response: Response, tag: str) -> None:
    """Send ``tag`` with an answer, to be checked again before each use."""
    response.headers["ETag"] = tag
    response.headers["Cache-Control"] = "no-cache"
