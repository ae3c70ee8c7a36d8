"""From a person's document to a checked ``JobSpec``, or to errors that name field, value, expectation and next step.

Used by the api on request bodies, by the client on YAML files before they are sent, and by the engine when it runs
alone: all three refuse the same things in the same words.

Not here: the rules themselves (``domain.spec``, ``domain.plan``, ``domain.support``).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

from domain.errors import ErrorCode, FieldError, LockstepError, pointer_of
from domain.plan import check_batch
from domain.spec import JobSpec
from domain.support import not_yet

UNION_TAGS = frozenset({"int", "GpuRange", "UploadedCode", "GitCode", "PathCode", "adamw", "sgd", "literal['auto']"})
"""Location parts that pydantic adds for the members of a union; a JSON pointer has no such parts."""


def read_spec(document: object) -> JobSpec:
    """Check a decoded JSON or YAML document as a job spec that this version can run.

    Raises
    ------
    LockstepError
        ``invalid`` with one ``FieldError`` per wrong value; ``not_yet`` where a documented field has no function yet.
    """
    if not isinstance(document, dict):
        message = f"a job spec is an object with fields such as name and kind, not {_kind_of(document)}"
        raise LockstepError(ErrorCode.INVALID, message, fields=(FieldError("", message, document),))
    try:
        spec = JobSpec.model_validate(document)
    except ValidationError as error:
        raise invalid(field_errors(error, JobSpec)) from None
    problems = tuple(check_batch(spec))
    if problems:
        raise invalid(problems)
    later = tuple(not_yet(spec))
    if later:
        raise LockstepError(ErrorCode.NOT_YET, _summary(later), next_step=later[0].next_step, fields=later)
    return spec


def invalid(fields: tuple[FieldError, ...]) -> LockstepError:
    """The refusal of a document for these wrong values."""
    return LockstepError(ErrorCode.INVALID, _summary(fields), next_step=fields[0].next_step, fields=fields)


def field_errors(error: ValidationError, model: type[BaseModel]) -> tuple[FieldError, ...]:
    """The errors of a pydantic validation, each with a JSON pointer into the document, without duplicates."""
    found: dict[str, FieldError] = {}
    for line in error.errors():
        location = tuple(
            part for part in line["loc"] if part not in UNION_TAGS and not str(part).startswith("function-")
        )
        context = line.get("ctx", {})
        if line["type"] == "at_field":
            location = (*location, *context["location"])
        pointer = pointer_of(location)
        message, next_step = _explain(line, location, model)
        value = None if line["type"] in {"missing", "at_field"} else line["input"]
        if pointer in found:
            if message not in found[pointer].message:
                found[pointer] = FieldError(pointer, f"{found[pointer].message}; or: {message}", value, next_step)
        else:
            found[pointer] = FieldError(pointer, message, value, next_step)
    return tuple(found.values())


def _summary(fields: tuple[FieldError, ...]) -> str:
    first = fields[0]
    more = f" (and {len(fields) - 1} more)" if len(fields) > 1 else ""
    return f"{first.pointer.lstrip('/').replace('/', '.') or 'spec'}: {first.message}{more}"


def _explain(line: Any, location: tuple[int | str, ...], model: type[BaseModel]) -> tuple[str, str]:
    """Message and next step for one line of a pydantic error."""
    if line["type"] == "missing":
        return "is needed and missing", "add it to the spec"
    if line["type"] == "extra_forbidden":
        known = sorted(_fields_at(model, location[:-1]))
        near = difflib.get_close_matches(str(location[-1]), known, n=1)
        message = f"there is no such field here; known: {', '.join(known)}" if known else "there is no such field here"
        return message, f"did you mean {near[0]!r}?" if near else "remove it"
    message = line["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if line["type"] == "at_field":
        return message, ""
    return f"{message}, got {_shown(line['input'])}", ""


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> Iterator[str]:
    """Names of the fields that the object at ``location`` may have."""
    models: list[type[BaseModel]] = [model]
    for part in location:
        models = [
            inner
            for outer in models
            if part in outer.model_fields
            for inner in _models_in(outer.model_fields[str(part)].annotation)
        ]
    for found in models:
        yield from found.model_fields


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _models_in(argument)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _kind_of(value: object) -> str:
    names = {
        type(None): "nothing",
        list: "a list",
        str: "a text",
        int: "a number",
        float: "a number",
        bool: "true or false",
    }
    return names.get(type(value), type(value).__name__)
