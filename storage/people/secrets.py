"""Secrets of tokens: random, recognisable, with a checksum.

The form is GitHub's: a prefix, 30 characters of base 62 (178 bits), and the CRC-32 of both in 6
characters. Scanners recognise it, and a typing error is no look-up.

Not here: their digests in the database (``storage.people.tokens``).
"""

from __future__ import annotations

import secrets
import string
import zlib
from typing import Final

OF_USER: Final = "lsp_"
OF_PROGRAM: Final = "lss_"
SHOWN_CHARS: Final = 9
"""First characters, with the prefix, that lists show."""
_DIGITS: Final = string.digits + string.ascii_letters
_RANDOM_CHARS: Final = 30
_CHECK_CHARS: Final = 6


def make(prefix: str) -> str:
    """Return a new secret."""
    body = prefix + "".join(secrets.choice(_DIGITS) for _ in range(_RANDOM_CHARS))
    return body + _check(body)


def is_mistyped(secret: str) -> bool:
    """Return whether a secret has one of the prefixes and a wrong checksum."""
    if not secret.startswith((OF_USER, OF_PROGRAM)):
        return False
    return _check(secret[:-_CHECK_CHARS]) != secret[-_CHECK_CHARS:]


def _check(body: str) -> str:
    rest, found = zlib.crc32(body.encode(errors="surrogateescape")), ""
    for _ in range(_CHECK_CHARS):
        rest, digit = divmod(rest, len(_DIGITS))
        found = _DIGITS[digit] + found
    return found
