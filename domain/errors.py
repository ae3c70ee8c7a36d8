"""Errors that users meet, as one small set of codes.

All programs raise ``LockstepError`` with the problem, the value, the expectation and the next step.
Only ``api.http.problems`` maps the codes to HTTP, and only ``client`` maps them to exit codes.

Not here: outcomes of jobs (``domain.life.outcomes``). A failed job is a value, not an exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pydantic_core import PydanticCustomError

SETTINGS_REFUSED: Final = 78
"""Exit status of a program that refuses its settings: another start cannot help."""


class ErrorCode(StrEnum):
    """Kind of a refusal. The value is the problem document's ``code``."""

    INVALID = "invalid"
    """The request is well-formed but a value in it cannot be accepted."""
    MALFORMED = "malformed"
    """The body is not JSON, or the request is not HTTP."""
    ADDRESS_TOO_LONG = "address_too_long"
    MEDIA_TYPE = "media_type"
    """The body is of a media type that this address does not read."""
    METHOD = "method"
    """The address exists and does not support this method."""
    NOT_YET = "not_yet"
    """A documented field whose function this version does not have."""
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    """The request contradicts something that already happened (an idempotency key reused, a job
    that has ended)."""
    CONDITION = "condition"
    """A change under a condition (``If-Match``) that does not hold."""
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    TOO_LARGE = "too_large"
    TOO_MANY_REQUESTS = "too_many_requests"
    """The caller exceeded its rate limit. The request was not processed; try again later."""
    RANGE = "range"
    """A part of a file is asked for that lies behind its end."""
    UNAVAILABLE = "unavailable"
    """The database or the store does not answer, or too many ask at once. Nothing was written; try
    again."""
    STORAGE_FULL = "storage_full"
    INTERNAL = "internal"
    """A defect of Lockstep. The problem document names the log lines to read, and no more."""


@dataclass(frozen=True)
class FieldError:
    """One wrong value in a request.

    Attributes
    ----------
    pointer : str
        JSON pointer (RFC 6901) to the value in the request body, such as ``/train/batch/size``.
    message : str
        The problem and the expectation, as a sentence without the field's name.
    value : object
        The value as sent, or None if it was missing.
    next_step : str
        Advice for the user; empty if the message is sufficient.
    """

    pointer: str
    message: str
    value: Any = None
    next_step: str = ""


class LockstepError(Exception):
    """Refusal with a message for the user.

    ``retry_after_seconds`` is set if a later request may succeed.
    """

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


def at_field(
    location: tuple[str | int, ...], message: str, next_step: str = "", **more: object
) -> PydanticCustomError:
    """Return an error about one field, for a validator of several fields.

    ``domain.spec.reading`` prefixes ``location`` with the validator's own location, and appends the
    value to ``message``, which is written without the field's name (``show=False`` omits the
    value).
    """
    from pydantic_core import PydanticCustomError

    context = {"message": message, "location": location, "next_step": next_step, **more}
    return PydanticCustomError("at_field", "{message}", context)


def pointer_of(location: tuple[int | str, ...]) -> str:
    """JSON pointer (RFC 6901) of a pydantic error location."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in location)
