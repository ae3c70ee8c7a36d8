"""Detection of secrets in a job's environment, and their removal from the job's log.

A variable is a secret by its name: one of its words is ``TOKEN``, ``SECRET``, ``PASSWORD`` or
another of ``WORDS``, or its last word is ``KEY`` (``HF_TOKEN``, ``WANDB_API_KEY``, but not
``TOKENIZERS_PARALLELISM``). In every other value the password of an address is a secret
(``https://ada:PASSWORD@host``).

Each occurrence of such a value in a line is replaced by ``***``: the value itself, its
percent-encoded form, and each long line of a value with several lines (a private key). Values of
fewer than eight characters are not replaced, because they are words of ordinary lines.

Not here: the choice of lines (``engine.launcher.output.streams``). Other encodings of a secret
(base64, halves) are not detected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote

WORDS: Final = frozenset(
    {
        "TOKEN",
        "SECRET",
        "SECRETS",
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "CREDENTIAL",
        "CREDENTIALS",
        "APIKEY",
        "PAT",
    }
)
CHARS_MIN: Final = 8
MASK: Final = "***"
_IN_ADDRESS: Final = re.compile(r"://[^/@\s:]*:([^/@\s]+)@")


def is_secret(name: str) -> bool:
    """Return whether a variable is a secret by its name."""
    words = name.upper().split("_")
    return words[-1] == "KEY" or not WORDS.isdisjoint(words)


def secrets_of(environment: Mapping[str, str]) -> set[str]:
    """Every text that must not be seen of these variables."""
    found: set[str] = set()
    for name, value in environment.items():
        if is_secret(name):
            found.update(part.strip() for part in (value, *value.splitlines()))
        found.update(_IN_ADDRESS.findall(value))
    found |= {quote(value, safe="") for value in found}
    return {value for value in found if len(value) >= CHARS_MIN}


class Redactor:
    """Replaces texts in lines."""

    def __init__(self, values: Iterable[str]):
        # The longest first: of two with a common beginning, the shorter one would leave the end of
        # the other.
        ordered = sorted(values, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def clean(self, text: str) -> str:
        """The text with :data:`MASK` in place of each of them."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)
