"""Definitions of series that a script writes into its metrics file.

A line ``{"define": {"val/loss": {"direction": "lower", "unit": "nats"}}}`` gives names their
metadata. It has no values and no step. The last definition of a name counts.

Not here: the metadata of the engine's series, and defaults (``domain.training.series``).
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

import pydantic_core
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from lockstep.domain import limits
from lockstep.domain.training.metrics import SYSTEM, is_name, name_refusal

Kind = Literal["number", "bytes", "seconds", "count", "percent"]
Direction = Literal["lower", "higher", "none"]
Axis = Literal["step", "time"]
Domain = tuple[float | None, float | None]

NO_DOMAIN: Final[Domain] = (None, None)
UNITS: Final[dict[Kind, str]] = {"bytes": "bytes", "seconds": "s", "percent": "%"}
"""Units of kinds, where a definition gives none."""
_DEFINITION: Final = re.compile(rb'\s*\{\s*"define"\s*:\s*\{')
_VALUE_CHARS_SHOWN: Final = 60


def _printable(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError("expected printable characters without spaces at either end")
    return text


class SeriesDefinition(BaseModel):
    """Metadata of a series, as far as the script gives it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    unit: (
        Annotated[
            str,
            Field(strict=True, max_length=limits.SERIES_UNIT_CHARS_MAX),
            AfterValidator(_printable),
        ]
        | None
    ) = None
    """Text beside numbers, such as ``nats`` or ``tokens/s``."""
    kind: Kind | None = None
    """Form of numbers: ``bytes`` are shown as KiB and MiB, ``seconds`` as times."""
    direction: Direction | None = None
    """``lower`` or ``higher`` values are better."""
    group: (
        Annotated[
            str,
            Field(strict=True, min_length=1, max_length=limits.SERIES_GROUP_CHARS_MAX),
            AfterValidator(_printable),
        ]
        | None
    ) = None
    """Heading of its chart; without it the prefix of the name."""
    axis: Axis | None = None
    """``time`` for a series that is drawn by the clock."""
    domain: (
        tuple[
            Annotated[float, Field(strict=True, allow_inf_nan=False)] | None,
            Annotated[float, Field(strict=True, allow_inf_nan=False)] | None,
        ]
        | None
    ) = None
    """Smallest and largest possible value; null without a bound."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        low, high = self.domain or NO_DOMAIN
        if low is not None and high is not None and low >= high:
            raise ValueError(f"domain: expected the smaller bound first, got [{low}, {high}]")
        return self

    def unit_or(self, known: str) -> str:
        """Return the unit: the given one, that of the given kind, or the known one."""
        if self.unit is not None:
            return self.unit
        return UNITS.get(self.kind, known) if self.kind is not None else known


NOTHING_DEFINED: Final = SeriesDefinition()


class Definitions(NamedTuple):
    """Definitions of one line, and those that are refused with their reasons."""

    defined: dict[str, SeriesDefinition]
    refused: dict[str, str]


def looks_defining(line: bytes) -> bool:
    """Return whether a line begins as definitions do, without parsing it."""
    return _DEFINITION.match(line) is not None


def definitions_in(line: bytes) -> Definitions | None:
    """Read a line of definitions; None for a line of another kind.

    Raises
    ------
    ValueError
        If the line has ``define`` and is no definition; the message gives the reason.
    """
    if b'"define"' not in line:
        return None  # without parsing it: there are thousands in a second
    try:
        document = pydantic_core.from_json(line)
    except ValueError:
        return None
    if not isinstance(document, dict) or "define" not in document:
        return None
    given = document.pop("define")
    if isinstance(given, int | float):
        return None  # a metric of this name
    if not isinstance(given, dict):
        raise ValueError(f"define: expected an object of series, got {_shown(given)}")
    if document:
        raise ValueError(f"a line with define has nothing else, got {_shown(next(iter(document)))}")
    found = Definitions({}, {})
    for name, fields in given.items():
        try:
            found.defined[name] = _definition(name, fields)
        except ValueError as error:
            found.refused[name] = str(error)
    return found


def _definition(name: str, fields: object) -> SeriesDefinition:
    if not is_name(name):
        raise ValueError(name_refusal())
    if name.startswith(SYSTEM):
        raise ValueError(f"names with {SYSTEM} are reserved for measurements of the node")
    if not isinstance(fields, dict):
        raise ValueError(f'expected an object such as {{"unit": "nats"}}, got {_shown(fields)}')
    try:
        return SeriesDefinition.model_validate(fields)
    except ValidationError as error:
        raise ValueError(_reason(error)) from None


def _reason(error: ValidationError) -> str:
    first: Any = error.errors(include_url=False)[0]
    where = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        fields = ", ".join(SeriesDefinition.model_fields)
        return f"unknown field {_shown(where)}; expected {fields}"
    message = str(first["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}, got {_shown(first['input'])}" if where else message


def _shown(value: object) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= _VALUE_CHARS_SHOWN else f"{text[:_VALUE_CHARS_SHOWN]}…"
