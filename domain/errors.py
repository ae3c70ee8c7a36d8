"""The errors a person can meet, as one small set of codes.

Any part raises ``LockstepError`` with what was wrong, with which value, what was expected and what to do next;
``api.http.problems`` alone maps the codes to HTTP, ``client`` alone maps them to exit codes.

Not here: outcomes of jobs (``domain.life.outcomes``). A failed job is a value, not an exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_core import PydanticCustomError


class ErrorCode(StrEnum):
    """What kind of refusal it was. The value travels in the problem document's ``code``."""

    INVALID = "invalid"
    """The request is well-formed but a value in it cannot be accepted."""
    MALFORMED = "malformed"
    """The body is not JSON."""
    MEDIA_TYPE = "media_type"
    """The body is of a media type that this address does not read."""
    METHOD = "method"
    """The address exists and does not know this method."""
    NOT_YET = "not_yet"
    """A documented field whose function this version does not have."""
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    """The request contradicts something that already happened (an idempotency key reused, a job that has ended)."""
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    TOO_LARGE = "too_large"
    TOO_MANY_REQUESTS = "too_many_requests"
    """This caller asks more often than it may. Nothing was looked at; try again later."""
    RANGE = "range"
    """A part of a file is asked for that lies behind its end."""
    UNAVAILABLE = "unavailable"
    """The database or the store does not answer, or too many ask at once. Nothing was written; try again."""
    STORAGE_FULL = "storage_full"
    INTERNAL = "internal"
    """A defect of Lockstep. The problem document says which lines of the log to read, and no more."""


@dataclass(frozen=True)
class FieldError:
    """One wrong value in a request.

    Attributes
    ----------
    pointer : str
        JSON pointer (RFC 6901) to the value in the request body, such as ``/train/batch/size``.
    message : str
        What is wrong with it and what was expected, as a sentence without the field's name.
    value : object
        The value as sent, or None where it was missing.
    next_step : str
        What the person can do about it; empty where the message says it all.
    """

    pointer: str
    message: str
    value: Any = None
    next_step: str = ""


class LockstepError(Exception):
    """A refusal meant to be read by the person who caused it; with ``retry_after_seconds`` where it is known when it passes."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        next_step: str = "",
        fields: tuple[FieldError, ...] = (),
        retry_after_seconds: int | None = None,
    ):
        super().__init__(message)
        self.code = code
        self.message = message
        self.next_step = next_step
        self.fields = fields
        self.retry_after_seconds = retry_after_seconds


def at_field(location: tuple[str | int, ...], message: str, next_step: str = "", **more: object) -> PydanticCustomError:
    """An error about one field, from a validator that saw more than this field.

    ``domain.spec.reading`` adds ``location`` to where the validator stands, and the value found there to ``message``, which
    is written without the field's name (``show=False`` leaves the value out, where it would say nothing).
    """
    from pydantic_core import PydanticCustomError

    context = {"message": message, "location": location, "next_step": next_step, **more}
    return PydanticCustomError("at_field", "{message}", context)


def pointer_of(location: tuple[int | str, ...]) -> str:
    """JSON pointer (RFC 6901) of a pydantic error location."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in location)
