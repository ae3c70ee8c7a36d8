"""Conditional requests: entity tags and 304 responses (RFC 9110 §13).

A tag is built from counters that change whenever the response may (a job's version, its progress
sequence), and an unchanged response is recognised before it is built. The counters are read before
the data: a concurrent change is then sent under the old tag, and the client only reads it again.

Not here: the counters (``api.jobs.views.job_tag``, ``api.http.tags``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final

from fastapi import Request, Response

from lockstep.api.http import problems
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.version import VERSION

ETAG: Final[dict[str, Any]] = {
    "ETag": {
        "description": "Version of the response; send it as `If-None-Match`.",
        "schema": {"type": "string"},
    }
}
RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"headers": ETAG},
    304: {"description": "Not modified since the response with this `ETag`.", "headers": ETAG},
}
"""``responses`` of a route with an entity tag."""


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the ``responses`` of a route with an entity tag under ``/v1``, errors included."""
    return {**RESPONSES, **problems.documented(*statuses)}


def tag_of(*parts: object) -> str:
    """Return a weak entity tag made of ``parts``.

    The tag is weak: two responses with one tag are equivalent but may differ in a clock reading. It
    contains the version of Lockstep, since the next version may return more fields for unchanged
    data.
    """
    return f'W/"{VERSION}.' + ".".join("-" if part is None else str(part) for part in parts) + '"'


def digest(marks: Iterable[object]) -> str:
    """Return a digest of any number of values, as a part of a tag."""
    return hashlib.blake2b(repr(list(marks)).encode(), digest_size=12).hexdigest()


def unchanged(request: Request, tag: str) -> Response | None:
    """Return a 304 response if the client already has the response with this tag, else None."""
    asked = request.headers.getlist("if-none-match")
    held = [candidate.strip() for header in asked for candidate in header.split(",")]
    # If-None-Match uses the weak comparison: W/"a" and "a" are equal.
    if "*" in held or any(
        candidate.removeprefix("W/") == tag.removeprefix("W/") for candidate in held
    ):
        return Response(status_code=304, headers={"ETag": tag, "Cache-Control": "no-cache"})
    return None


async def refuse_if_match(request: Request) -> None:
    """Refuse a change under ``If-Match`` (a dependency): it would be carried out regardless.

    The comparison is a strong one, which no weak tag passes: a tag of a job changes with each step.
    """
    given = request.headers.get("if-match", "*").strip()
    if request.method not in {"GET", "HEAD"} and given != "*":
        raise LockstepError(
            ErrorCode.CONDITION,
            f"If-Match: {given[:100]} does not hold: all tags of views are weak, and that of a job "
            "changes with each step; nothing was written",
            next_step="read the present state, and send the change without If-Match",
        )


def mark(response: Response, tag: str) -> None:
    """Add ``tag`` to a response, with revalidation before each use."""
    response.headers["ETag"] = tag
    response.headers["Cache-Control"] = "no-cache"
