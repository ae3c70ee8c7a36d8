"""Names of what a node offers and a job needs: ``data:imagenet``, ``rack:a``, ``python:3.11``.

A job runs only on nodes that offer all that it needs. A name has no other meaning.

Not here: the choice of nodes (``domain.scheduling.offers``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

NAME: Final = r"^[a-z0-9][a-z0-9._/-]*(:[a-z0-9._/:-]+)?$"
EXPECTED: Final = (
    "a word or key:value of lower-case letters, digits, '.', '_', '-' and '/', such as "
    "data:imagenet"
)
CHARS_MAX: Final = 128
OFFERS_MAX: Final = 64
"""Names of one job, and of one node beside those that its agent finds itself."""
FOUND: Final = ("kind", "python", "request")
"""Keys of the names that an agent finds itself: of its devices, its interpreter and its program."""
PAUSES: Final = "request:pause"
"""Of an agent that knows the intents to pause and to requeue. One that does not fails to read them,
and loses the leases of all jobs of its node. No job needs it, so the views leave it out."""
CUDA: Final = "kind:cuda"
NAMED_MAX: Final = 3
"""Names in one sentence; the others are counted."""


def normal(names: Iterable[str]) -> list[str]:
    """Return each name once, in order."""
    return sorted(set(names))


def offers_of(text: str) -> list[str]:
    """Return the names of a comma-separated text.

    Raises
    ------
    ValueError
        If one of them is not in the form of a name, or is found by the agent itself, or if there
        are too many.
    """
    names = [name.strip() for name in text.split(",")] if text.strip() else []
    if len(names) > OFFERS_MAX:
        raise ValueError(f"expected at most {OFFERS_MAX} names, got {len(names)}")
    for name in names:
        if not re.fullmatch(NAME, name, re.ASCII):
            raise ValueError(f"{_shown(name)} is not a name: expected {EXPECTED}")
        if len(name) > CHARS_MAX:
            raise ValueError(f"{_shown(name)} is too long: expected at most {CHARS_MAX} characters")
        if name.partition(":")[0] in FOUND:
            raise ValueError(f"{_shown(name)} is found by the agent itself: remove it")
    return normal(names)


def lacking(needs: frozenset[str], nodes: Iterable[frozenset[str]]) -> str:
    """Return what no node offers, in words; empty if a node offers all of it."""
    known = list(nodes)
    if any(needs <= offered for offered in known):
        return ""
    missing = sorted(needs.difference(*known))
    return named(missing, "or") if missing else f"{named(sorted(needs), 'and')} together"


def named(names: Sequence[str], word: str) -> str:
    """Return the first names with a word before the last one, and the number of the others."""
    shown = list(names[:NAMED_MAX])
    if len(names) > NAMED_MAX:
        shown.append(f"{len(names) - NAMED_MAX} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} {word} {shown[-1]}"


def _shown(name: str) -> str:
    return repr(name if len(name) <= CHARS_MAX else f"{name[: CHARS_MAX - 3]}...")
