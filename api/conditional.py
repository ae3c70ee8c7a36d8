"""Polling that costs little: entity tags, and 304 where nothing has changed (RFC 9110 §13).

A tag is made from counters that change whenever the answer may (a job's version, its progress sequence), so an unchanged
answer is recognised before it is built.

Not here: which counters (``api.views.job_tag``).
"""

from __future__ import annotations

from fastapi import Request, Response


def tag_of(*parts: object) -> str:
    """A weak entity tag. Weak, because two answers under one tag mean the same but may differ in a clock reading."""
    return 'W/"' + ".".join("-" if part is None else str(part) for part in parts) + '"'


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
