"""Changes of single values of a job's document: ``--set``, and ``set`` of a clone.

A value is named by its path through objects and lists. Missing objects on the way are created;
lists are not extended. The value is taken as it is, null included: in a spec, ``clip_grad_norm:
null`` differs from a missing field.

Not here: validation of the changed document (``domain.spec.reading``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class FieldNotFoundError(ValueError):
    """A path leads into something that has no such place; the message names it."""


def put(document: dict[str, Any], path: Sequence[str], value: object) -> None:
    """Set one value of ``document``, in place.

    Raises
    ------
    FieldNotFoundError
        If the path leads through a list or a single value and finds no such place there.
    """
    here: Any = document
    for number, name in enumerate(path):
        last = number == len(path) - 1
        if isinstance(here, dict):
            if last:
                here[name] = value
            else:
                if not isinstance(here.get(name), dict | list):
                    here[name] = {}
                here = here[name]
            continue
        where = ".".join(path[:number])
        if not isinstance(here, list):
            raise FieldNotFoundError(f"{where} is a single value and has no field {name!r}")
        if not (name.isdecimal() and name.isascii() and int(name) < len(here)):
            count = len(here)
            there = f"use an index from 0 to {count - 1}" if count else "it is empty"
            advice = "to add an entry, set the whole list"
            raise FieldNotFoundError(f"{where} has no entry {name[:40]!r}: {there}; {advice}")
        if last:
            here[int(name)] = value
        else:
            here = here[int(name)]


def value_at(document: object, path: Sequence[str], default: object) -> object:
    """The value at a path; ``default`` where there is none."""
    here = document
    for name in path:
        if isinstance(here, dict) and name in here:
            here = here[name]
        elif (
            isinstance(here, list) and name.isdecimal() and name.isascii() and int(name) < len(here)
        ):
            here = here[int(name)]
        else:
            return default
    return here


def path_of(pointer: str) -> list[str]:
    """The parts of a JSON pointer (RFC 6901) to something inside a document.

    Raises
    ------
    ValueError
        If it is none.
    """
    if not pointer.startswith("/") or "~" in pointer.replace("~0", "").replace("~1", ""):
        raise ValueError(f"expected a JSON pointer such as /train/steps, got {pointer[:80]!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]
