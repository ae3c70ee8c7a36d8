"""Validation of a user's document.

The result is a checked ``JobSpec``, or errors with field, value, expectation and next step.

Used by the api on request bodies, by the client on YAML files before they are sent, and by the
engine when it runs alone: all three refuse the same documents with the same messages. One wrong
value gets one error.

Not here: the rules themselves (``domain.spec.job``, ``domain.training.plan``,
``domain.spec.feature_gate``).
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from lockstep.domain.errors import ErrorCode, FieldError, LockstepError, pointer_of
from lockstep.domain.spec import tasks
from lockstep.domain.spec.batch import check_batch
from lockstep.domain.spec.feature_gate import not_yet
from lockstep.domain.spec.fields import DOTTED_PATH, PATTERNS
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.launchers import launcher_refusals
from lockstep.domain.spec.optimizer import NAMES, OPTIMIZERS
from lockstep.domain.spec.outputs import keep_refusals
from lockstep.domain.spec.parallel import check_parallel

Location = tuple[int | str, ...]
_SHOWN_CHARS_MAX: Final = 80
"""A longer value is truncated in messages."""


_RESERVED_NAMES: Final = {
    "last": "it means the newest job of all",
    "plan": "/v1/jobs/plan is another address",
}


def read_spec(document: object) -> JobSpec:
    """Check a decoded JSON or YAML document as a job spec that this version can run.

    Raises
    ------
    LockstepError
        ``invalid`` with one ``FieldError`` per wrong value; ``not_yet`` where a documented field
        has no function yet.
    """
    if not isinstance(document, dict):
        message = (
            f"expected a job spec: an object with fields such as name and kind, got "
            f"{_kind_of(document)}"
        )
        field = FieldError("", message, _plain(document), "start with one of the examples")
        raise LockstepError(ErrorCode.INVALID, message, next_step=field.next_step, fields=(field,))
    try:
        spec = JobSpec.model_validate(document)
    except ValidationError as error:
        raise invalid(field_errors(error, JobSpec, document)) from None
    problems = (*_name_refusals(spec.name), *check_parallel(spec), *check_batch(spec))
    problems += (*launcher_refusals(spec), *keep_refusals(spec.outputs.keep))
    if problems:
        raise invalid(problems)
    later = tuple(not_yet(spec))
    if later:
        raise LockstepError(
            ErrorCode.NOT_YET, _summary(later), next_step=later[0].next_step, fields=later
        )
    return spec


def _name_refusals(name: str) -> Iterator[FieldError]:
    """The error about a name that means something else where a job is named, if it does.

    A stored job with such a name stays readable.
    """
    meaning = None
    if name in _RESERVED_NAMES:
        meaning = _RESERVED_NAMES[name]
    elif re.fullmatch(r"[0-9a-f-]{4,36}", name):
        meaning = "commands read it as a part of a job's id"
    if meaning:
        yield FieldError(
            "/name",
            f"{name!r} cannot name a job: {meaning}",
            name,
            f"use another name, such as job-{name}",
        )


def invalid(fields: tuple[FieldError, ...]) -> LockstepError:
    """The refusal of a document for these wrong values."""
    return LockstepError(
        ErrorCode.INVALID, _summary(fields), next_step=fields[0].next_step, fields=fields
    )


def field_errors(
    error: ValidationError, model: type[BaseModel], document: object
) -> tuple[FieldError, ...]:
    """Errors of a pydantic validation of ``document``: one per wrong value, with JSON pointers."""
    found: dict[str, FieldError] = {}
    for line in _flat(error.errors(), model, ()):
        location = in_document(line["loc"], document, keep_last=line["type"] in _MAY_BE_ABSENT)
        message, next_step = _explain(line, line["model"], line["loc"])
        value = (
            location[-1]
            if line["loc"][-1:] == ("[key]",) or line["type"] == "invalid_key"
            else value_at(document, location)
        )
        if (
            value is not _ABSENT
            and line["type"] not in {"extra_forbidden", "missing"}
            and line["ctx"].get("show", True)
        ):
            message = f"{message}, got {_shown(value)}"
        pointer = pointer_of(location)
        # The first error about a value is the most basic one: its kind comes before its bounds.
        found.setdefault(
            pointer,
            FieldError(pointer, message, None if value is _ABSENT else _plain(value), next_step),
        )
    return tuple(found.values())


def _summary(fields: tuple[FieldError, ...]) -> str:
    first = fields[0]
    more = f" (and {len(fields) - 1} more)" if len(fields) > 1 else ""
    field = first.pointer.lstrip("/").replace("/", ".")
    # An error about the whole document has no field: the same words serve a spec and a sign-in.
    return f"{field}: {first.message}{more}" if field else f"{first.message}{more}"


def _flat(lines: Iterable[Any], model: type[BaseModel], base: Location) -> Iterator[dict[str, Any]]:
    """Pydantic's errors with whole locations; those about a task's arguments are expanded."""
    for line in lines:
        location: Location = (*base, *line["loc"])
        context: Mapping[str, Any] = line.get("ctx", {})
        if line["type"] == "at_field":
            location = (*location, *context.get("location", ()))
            inner = context.get("inner")
            if isinstance(inner, ValidationError):
                yield from _flat(inner.errors(), tasks.BUILT_IN[line["input"]["task"]], location)
                continue
        elif line["type"] == "union_tag_invalid":
            location = (*location, "name")
        yield {**line, "loc": location, "ctx": context, "model": model, "base": base}


# Locations. Pydantic's carry, beside names and indices, the tag of each union's chosen member and a
# mark for keys. A JSON
# pointer has neither, so what is not found in the document is left out.

_ABSENT: Final = object()
_MAY_BE_ABSENT: Final = frozenset({"missing", "at_field"})
"""Kinds of error whose last part may name something that the document does not have."""


def in_document(location: Location, document: object, *, keep_last: bool = False) -> Location:
    """The part of a pydantic location that is in the document."""
    kept: list[int | str] = []
    here = document
    for index, part in enumerate(location):
        inner = value_at(here, (part,))
        if inner is not _ABSENT:
            kept.append(part)
            here = inner
        elif keep_last and index == len(location) - 1 and isinstance(here, dict | list):
            kept.append(part)
    return tuple(kept)


def value_at(document: object, location: Location) -> object:
    """The value at a place in the document; ``_ABSENT`` where there is none."""
    here = document
    for part in location:
        inside = (
            part in here
            if isinstance(here, dict)
            else isinstance(here, list) and part in range(len(here))
        )
        if not inside:
            return _ABSENT
        here = here[part]  # type: ignore[index]  # a dict with this key, or a list with this index
    return here


# Words.

_Explanation = Callable[[Mapping[str, Any]], tuple[str, str]]
_EXPECTED: Final[dict[str, _Explanation]] = {
    "missing": lambda _: ("is required", "add it to the spec"),
    "invalid_key": lambda _: ("expected a text as the field's name", "put it in quotes"),
    "int_type": lambda _: ("expected a whole number", "write it as a number, such as 8"),
    "int_parsing": lambda _: ("expected a whole number", "write it as a number, such as 8"),
    "int_from_float": lambda _: ("expected a whole number", "remove the fractional part"),
    "int_parsing_size": lambda _: ("expected a smaller number", "check the number of digits"),
    "float_type": lambda _: ("expected a number", "write it as a number, such as 3.0e-4"),
    "float_parsing": lambda _: ("expected a number", "write it as a number, such as 3.0e-4"),
    "finite_number": lambda _: ("expected a finite number", "write a number, such as 3.0e-4"),
    "bool_type": lambda _: ("expected true or false", "write true or false"),
    "bool_parsing": lambda _: ("expected true or false", "write true or false"),
    "string_type": lambda _: ("expected a text", 'put it in quotes, such as "8"'),
    "list_type": lambda _: ("expected a list", "write it as [first, second]"),
    "tuple_type": lambda _: ("expected a list", "write it as [first, second]"),
    "dict_type": lambda _: ("expected an object", "write it as {name: value}"),
    "greater_than": lambda c: (
        f"expected more than {_bound(c['gt'])}",
        f"use a value above {_bound(c['gt'])}",
    ),
    "greater_than_equal": lambda c: (
        f"expected at least {_bound(c['ge'])}",
        f"use {_bound(c['ge'])} or more",
    ),
    "less_than": lambda c: (
        f"expected less than {_bound(c['lt'])}",
        f"use a value below {_bound(c['lt'])}",
    ),
    "less_than_equal": lambda c: (
        f"expected at most {_bound(c['le'])}",
        f"use {_bound(c['le'])} or less",
    ),
    "string_too_short": lambda c: (
        f"expected at least {_count(c['min_length'], 'character')}",
        "write it out",
    ),
    "string_too_long": lambda c: (
        f"expected at most {_count(c['max_length'], 'character')}",
        "shorten it",
    ),
    "too_short": lambda c: (
        f"expected at least {_count(c['min_length'], 'entry', 'entries')}",
        "add the missing part",
    ),
    "too_long": lambda c: (
        f"expected at most {_count(c['max_length'], 'entry', 'entries')}",
        "remove some",
    ),
}
"""Expectation and next step for each kind of pydantic error that a spec can meet."""


def explained(
    line: Mapping[str, Any], patterns: Mapping[str, str] = PATTERNS
) -> tuple[str, str] | None:
    """Return the expectation and the next step for one of pydantic's errors about a single value.

    None for an error that needs more than its value, or that says both itself.

    Parameters
    ----------
    line : mapping
        One of ``ValidationError.errors()``.
    patterns : mapping
        Description of each pattern.
    """
    context, kind = line.get("ctx", {}), line["type"]
    if kind in {"literal_error", "enum"}:
        words = context["expected"].replace(" or ", ", ").split(",")
        choices = [word.strip().strip("'") for word in words]
        return f"expected {_either(choices)}", _near(line, choices) or f"use {_either(choices)}"
    if kind == "string_pattern_mismatch" and context["pattern"] in patterns:
        return f"expected {patterns[context['pattern']]}", "use only these characters"
    explain = _EXPECTED.get(kind)
    return None if explain is None else explain(context)


def _explain(line: Any, model: type[BaseModel], location: Location) -> tuple[str, str]:
    """Return the expectation and the next step for one line of :func:`_flat`."""
    context, kind = line["ctx"], line["type"]
    if (words := explained(line)) is not None:
        return words
    if kind == "extra_forbidden":
        return _no_such_field(location[len(line["base"]) :], model)
    if kind == "at_field":
        near = _near(line, context.get("choices", ()))
        return context["message"], near or context.get("next_step") or "correct it"
    if kind == "union_tag_invalid":
        named = difflib.get_close_matches(str(context["tag"]), NAMES, n=1)
        expected = _either([*NAMES, PATTERNS[DOTTED_PATH]])
        return f"expected {expected}", f"did you mean {named[0]}?" if named else f"use {expected}"
    if kind in {"model_type", "model_attributes_type"}:
        names = sorted(
            {
                name
                for found in _models_at(model, location[len(line["base"]) :])
                for name in found.model_fields
            }
        )
        return (
            f"expected an object with fields such as {', '.join(names[:3])}",
            "write it as {name: value}",
        )
    return str(line["msg"]).removeprefix(
        "Value error, "
    ), "use one of these" if kind == "choice" else "correct it"


def _no_such_field(location: Location, model: type[BaseModel]) -> tuple[str, str]:
    name = str(location[-1])
    known = sorted(
        {field for found in _models_at(model, location[:-1]) for field in found.model_fields}
    )
    message = f"unknown field; expected one of {', '.join(known)}"
    surely = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    here = ".".join(str(part) for part in location if part not in OPTIMIZERS)
    elsewhere = [path for path in _paths(model) if path.rpartition(".")[2] == name and path != here]
    perhaps = difflib.get_close_matches(name, known, n=1)
    meant = [*surely, *elsewhere, *perhaps]
    otherwise = "write it in args, if the class takes it" if "args" in known else "remove it"
    place = " at the top level" if meant[:1] == [name] else ""
    return message, f"did you mean {meant[0]}{place}?" if meant else otherwise


def _near(line: Any, choices: Iterable[str]) -> str:
    """Return a hint at the most similar choice; empty if none is similar."""
    value = line["input"]
    if isinstance(value, dict):  # the validator stood at the whole object
        value = value_at(value, line["ctx"].get("location", ()))
    near = difflib.get_close_matches(str(value), list(choices), n=1)
    return f"did you mean {near[0]}?" if near else ""


def _models_at(model: type[BaseModel], location: Location) -> list[type[BaseModel]]:
    """The types that the object at ``location`` may have.

    A union's tag in it leaves that member alone.
    """
    models: list[type[BaseModel]] = [model]
    for part in location:
        chosen = [outer for outer in models if outer.__name__.lower() == str(part).lower()]
        models = chosen or [
            inner
            for outer in models
            if part in outer.model_fields
            for inner in _models_in(outer.model_fields[str(part)].annotation)
        ]
    return models


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _models_in(argument)


def _paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every field of ``model``, nearest first, as ``train.optimizer.lr``."""
    deeper = []
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}"
        deeper += [(inner, f"{prefix}{name}.") for inner in _models_in(field.annotation)]
    for inner, path in deeper:
        yield from _paths(inner, path)


def _either(choices: list[str]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"


def _bound(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else str(number)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one}" if number == 1 else f"{number} {many or one + 's'}"


def _shown(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[: _SHOWN_CHARS_MAX - 3]}..."


def _plain(value: object) -> object:
    """Return a short form of a value that JSON can represent."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if isinstance(value, str) and len(value) <= _SHOWN_CHARS_MAX else _shown(value)


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
