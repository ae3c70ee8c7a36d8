"""Settings of one program as a list: value, source and meaning of each.

A program writes the list instead of starting (``python -m lockstep.api settings``), with the values
that it would refuse at its start.

Not here: the list of all programs (``lockstep settings``).
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Final, NoReturn

from pydantic import TypeAdapter, ValidationError

from lockstep.domain.errors import SETTINGS_REFUSED, LockstepError
from lockstep.domain.life.timings import Timings
from lockstep.storage.control import agreed_timings
from lockstep.storage.db.database import Database
from lockstep.storage.db.settings import StorageSettings

PREFIX: Final = "LOCKSTEP_"
_OPTION: Final = re.compile(r"(password=)[^&]*")
_USER: Final = re.compile(r"(://[^/?#@:]*:).*(?=@)")
"""Password of an address. It may contain every character, so the last ``@`` ends it."""
_TIMINGS: Final = tuple(field.name for field in fields(Timings))


@dataclass(frozen=True)
class ListedSetting:
    """One setting of a program."""

    name: str
    """Of its variable."""
    value: str | None
    """With passwords masked; None if it is unset or cannot be read."""
    source: str
    """``default``, ``environment`` or ``database``; otherwise the reason why there is no value."""
    meaning: str


def document(model: type[StorageSettings]) -> str:
    """Return the settings of a program, and the refusals of its start, as a JSON document."""
    refused: list[str] = []
    try:
        model()
    except ValidationError as error:
        refused = refusals(error)
    rows = [asdict(row) for row in listed(model)]
    return json.dumps({"settings": rows, "refused": refused}, ensure_ascii=False)


def refusals(error: ValidationError) -> list[str]:
    """Return a line for each setting that a program refuses. It names the variable."""
    return [
        ": ".join(
            [
                *("_".join([PREFIX[:-1], *map(str, line["loc"])]).upper() for _ in line["loc"][:1]),
                line["msg"].removeprefix("Value error, "),
            ]
        )
        for line in error.errors()
    ]


def refuse(program: str, error: ValidationError) -> NoReturn:
    """End a program at its start, with its refusals."""
    print(f"{program}: " + "; ".join(refusals(error)), file=sys.stderr)  # noqa: T201 -- no log yet
    sys.exit(SETTINGS_REFUSED)


def listed(model: type[StorageSettings]) -> list[ListedSetting]:
    """Return the settings of a program, and the timings that it reads from the database."""
    rows = []
    for name, field in model.model_fields.items():
        variable, meaning = f"{PREFIX}{name.upper()}", _plain(field.description or "")
        value, source = os.environ.get(variable), "environment"
        if value is None and field.is_required():
            source = "missing"
        elif value is None:
            default = field.get_default(call_default_factory=True)
            value, source = (None if default in (None, "", ()) else _text(default)), "default"
        rows.append(
            ListedSetting(variable, None if value is None else _masked(value), source, meaning)
        )
    if not set(_TIMINGS) <= model.model_fields.keys():
        rows += _agreed()
    return rows


def _agreed() -> Iterator[ListedSetting]:
    timings, source = _stored()
    schema = TypeAdapter(Timings).json_schema()["properties"]
    for name in _TIMINGS:
        value = None if timings is None else _text(getattr(timings, name))
        meaning = _plain(schema[name]["description"])
        yield ListedSetting(f"{PREFIX}{name.upper()}", value, source, meaning)


def _stored() -> tuple[Timings | None, str]:
    """Return the stored timings and ``database``, or the defaults if there are none."""
    try:
        urls = StorageSettings()
    except ValidationError:
        return None, "the database is not set"
    database = Database(urls.database_url, urls.series_url)
    try:
        with database.read_jobs() as session:
            found = agreed_timings.stored(session)
    except LockstepError:
        return None, "the database does not answer"
    finally:
        database.close()
    return (agreed_timings.DEFAULTS, "default") if found is None else (found, "database")


def _plain(docstring: str) -> str:
    return " ".join(docstring.split()).replace("``", "`")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _masked(value: str) -> str:
    return _USER.sub(r"\1***", _OPTION.sub(r"\1***", value))
