"""Documents of other versions of Lockstep: the spec of a job, the orders in an attempt's folder.

A submitted spec is checked strictly (``domain.spec.reading``). A document that one program stores
and another reads may be one version newer or older than the reader. An unknown field is ignored,
and logged, if its value is neutral: null, false, zero or empty, also all through a section. New
fields of the spec have neutral defaults (a test verifies that), so such a value requests nothing.
Any other unknown field requests a feature that this version lacks, and is refused by name.

Reports (outcomes, events, log lines) are not read here: they are kept without an unknown detail
instead of being refused.

Not here: comparing the databases' schema with the code's (``storage.db.schema``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from lockstep.domain.errors import pointer_of
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.reading import Location, field_errors, in_document, value_at
from lockstep.domain.version import VERSION

NAMED_MAX: Final = 3
"""Fields named in a refusal; the others are counted."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class UnreadableSpecError(Exception):
    """A stored spec that this version cannot carry out. The message names the fields."""


def read_stored_spec(document: object) -> JobSpec:
    """Return the spec of a stored job.

    Raises
    ------
    UnreadableSpecError
        If it has a field or a value of another version.
    """
    try:
        return read_tolerantly(document, JobSpec.model_validate)
    except ValidationError as error:
        why = _in_words(error, JobSpec, document)
        raise UnreadableSpecError(f"Lockstep {VERSION} cannot read the job's spec: {why}") from None


def read_tolerantly(document: Any, validate: Callable[[Any], T]) -> T:
    """Validate a document without its unknown fields of neutral value.

    Raises
    ------
    ValidationError
        When anything else is wrong with it.
    """
    try:
        return validate(document)
    except ValidationError as error:
        ignored = [
            place for place in _unknown(error, document) if _is_neutral(value_at(document, place))
        ]
        if not ignored:
            raise
    found = validate(_without(document, ignored))
    names = ", ".join(".".join(map(str, place)) for place in ignored)
    log.warning(
        "fields of another version of Lockstep are ignored, because their values have no effect: "
        "%s",
        names,
    )
    return found


def _unknown(error: ValidationError, document: object) -> list[Location]:
    lines = error.errors(include_url=False, include_context=False, include_input=False)
    return [
        in_document(line["loc"], document) for line in lines if line["type"] == "extra_forbidden"
    ]


def _is_neutral(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_neutral, value.values()))
    return not value


def _without(document: Any, places: Iterable[Location]) -> Any:
    copied = deepcopy(document)
    for place in places:
        section: Any = value_at(copied, place[:-1])
        del section[place[-1]]
    return copied


def _in_words(error: ValidationError, model: type[BaseModel], document: object) -> str:
    unknown = {pointer_of(place) for place in _unknown(error, document)}
    fields = field_errors(error, model, document)
    named = [
        f"unknown field {_name(field.pointer)} = {field.value!r}"
        if field.pointer in unknown
        else f"{_name(field.pointer)}: {field.message}"
        for field in fields[:NAMED_MAX]
    ]
    more = f", and {len(fields) - NAMED_MAX} more" if len(fields) > NAMED_MAX else ""
    return ", ".join(named) + more


def _name(pointer: str) -> str:
    return pointer.lstrip("/").replace("/", ".") or "spec"
