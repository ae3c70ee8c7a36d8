"""Random credentials of a fixed form: prefix, 30 characters, and a checksum.

The prefix is for scanners of code and logs. The checksum finds typing errors without a look at the
database. The 30 characters are 178 random bits.

Not here: what a credential is good for (``storage.people.sessions``, ``storage.people.users``).
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
import zlib
from typing import Final

USER: Final = "lsp_"
"""Token of a person."""
PROGRAM: Final = "lss_"
"""Token of a program."""
SESSION: Final = "lst_"
INVITATION: Final = "lsi_"
_DIGITS: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
SHOWN_CHARS: Final = 9
"""First characters, with the prefix, that lists show."""
RANDOM_CHARS: Final = 30
CHECK_CHARS: Final = 6
"""Digits of a CRC32 in base 62."""
_IN_TEXT: Final = re.compile(r"(ls[psti]_|lockstep_)[0-9A-Za-z_-]{20,}")
"""Also of the first token of an installation."""


def make(prefix: str) -> str:
    """Return a new credential."""
    text = prefix + "".join(secrets.choice(_DIGITS) for _ in range(RANDOM_CHARS))
    return text + _checksum(text)


def is_whole(text: str, prefix: str) -> bool:
    """Return whether a text has the form of a credential with this prefix."""
    body, check = text[:-CHECK_CHARS], text[-CHECK_CHARS:]
    right_length = len(text) == len(prefix) + RANDOM_CHARS + CHECK_CHARS
    return right_length and text.isascii() and text.startswith(prefix) and check == _checksum(body)


def is_mistyped(text: str) -> bool:
    """Return whether a text begins as a token and is none."""
    prefix = text[:4]
    return prefix in {USER, PROGRAM} and not is_whole(text, prefix)


def masked(text: str) -> str:
    """Return a text with ``***`` in place of each credential, without its prefix.

    People paste one where an id is expected, and addresses are logged.
    """
    return _IN_TEXT.sub(r"\1***", text)


def digest(plaintext: str) -> str:
    """Return the stored form of a credential.

    Its bits are random, so a fast hash without salt is enough: there is no dictionary to try.
    """
    return hashlib.sha256(plaintext.encode("utf-8", "surrogatepass")).hexdigest()


def _checksum(text: str) -> str:
    number, digits = zlib.crc32(text.encode()), ""
    for _ in range(CHECK_CHARS):
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits
