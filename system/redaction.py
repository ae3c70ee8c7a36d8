"""Detection of secrets in a job's environment, and their removal from the job's log.

A variable is a secret by its name: one of its words is ``TOKEN``, ``SECRET``, ``PASSWORD`` or
another of ``WORDS``, or its last word is ``KEY`` (``HF_TOKEN``, ``WANDB_API_KEY``, but not
``TOKENIZERS_PARALLELISM``). In every other value the password of an address is a secret
(``https://ada:PASSWORD@host``).

Each occurrence of such a value in a line is replaced by ``***``, and each long line of a value with
several lines (a private key). An occurrence is the value itself, or a form in which programs print
it: JSON, Python's ``repr`` of a text or of bytes, a shell's quotes and backslashes, percent codes
with ``%20`` or ``+``, HTML, each of these once more in another one, base64 (also as a part of a
longer text), and hexadecimal. Values of fewer than eight characters are not replaced, because they
are words of ordinary lines.

Not here: the choice of lines (``engine.launcher.output.streams``). A value in two halves and other
encodings are not detected.
"""

from __future__ import annotations

import base64
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from html.entities import codepoint2name
from typing import Final
from urllib.parse import unquote

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
_ESCAPES_MAX: Final = 7
"""Backslashes before a character, or for one, that is escaped three times."""
_BACKSLASH: Final = r"(?:\\|%(?:25)*5[cC])"
_ESCAPED: Final = rf"{_BACKSLASH}{{1,{_ESCAPES_MAX}}}"
_SEMICOLON: Final = "(?:;|%(?:25)*3[bB])"
_QUOTES_MAX: Final = 25
"""Quotes and backslashes for one quote that a shell quoted twice."""
_ITEMS: Final = re.compile(r"""[\\'"]*'[\\'"]*|\\+|.""", re.DOTALL)
"""Items of a value: runs, and single characters."""
_NEVER_ESCAPED: Final = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."
)
_PLAIN: Final = frozenset(map(re.escape, _NEVER_ESCAPED))
"""Their patterns."""
_NUMBERED: Final = frozenset("<>&'\"")
"""Printable characters that JSON and HTML replace by their numbers."""
_LETTERS: Final = {
    "\n": "n",
    "\t": "t",
    "\r": "r",
    "\b": "b",
    "\f": "f",
    "\v": "v",
    "\a": "a",
    "\x1b": "[eE]",
}
_BASE64: Final = {"+": "[+-]", "/": "[/_]"}
_UNDECODED: Final = re.compile("[\udc80-\udcff]")
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
        for password in _IN_ADDRESS.findall(value):
            found |= {password, unquote(password)}
    return {value for value in found if len(value) >= CHARS_MIN}


class Redactor:
    """Replaces texts in lines, in every form of the module's list."""

    def __init__(self, values: Iterable[str]):
        # The longest first: of two with a common beginning, the shorter one would leave the end of
        # the other.
        ordered = sorted(values, key=len, reverse=True)
        forms = [form for value in ordered for form in _forms(value)]
        self._pattern = re.compile(_any_of(forms)) if forms else None

    def clean(self, text: str) -> str:
        """The text with :data:`MASK` in place of each of them."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)


def _forms(value: str) -> Iterator[list[str]]:
    """Return the forms of a value, each as patterns that follow one another."""
    items, after_run = [], False
    for item in _ITEMS.findall(value):
        is_run = item[0] in "\\'" or "'" in item
        items.append(_run(item) if is_run else _character(item, after_run=after_run))
        after_run = is_run
    yield items
    data = _bytes(value)
    for offset in range(3):
        yield _in_base64(data, offset)
    for digits in (data.hex(), data.hex().upper()):
        yield list(digits)


def _any_of(forms: list[list[str]]) -> str:
    """Return a pattern for any of the forms, an earlier one first.

    Those with the same beginning share it: ``re`` tries each alternative at each character.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    escaped: list[list[str]] = []
    for form in forms:
        if form[0] in _PLAIN or form[0] in _BASE64.values():
            groups[form[0]].append("".join(form[1:]))
        else:
            escaped.append(form)
    found = [f"{first}(?:{'|'.join(dict.fromkeys(rests))})" for first, rests in groups.items()]
    if escaped:
        # They are many alternatives each; no word begins with them.
        found.append(rf"(?![A-Za-z0-9_.-])(?:{'|'.join(map(''.join, escaped))})")
    return "|".join(found)


def _bytes(text: str) -> bytes:
    # Bytes of an environment that are not UTF-8 are surrogates here.
    return text.encode("utf-8", "surrogateescape" if _UNDECODED.search(text) else "surrogatepass")


def _in_base64(data: bytes, offset: int) -> list[str]:
    """Return the characters that depend on ``data`` alone, ``offset`` bytes after a group of three.

    Both alphabets are matched.
    """
    text = base64.b64encode(bytes(offset) + data).decode()
    whole = (offset + len(data)) * 8 // 6
    same = text[-(-offset * 8 // 6) : whole]
    # Where the text ends with the value, the last character has a part of it.
    end = "(?:[A-Za-z0-9+/_-]={1,2})?" if whole < len(text.rstrip("=")) else ""
    return [*(_BASE64.get(char, char) for char in same), end]


def _run(text: str) -> str:
    """Return a pattern for a run of backslashes, or of them and quotes.

    A shell ends its quotes for each ``'`` of the value, as in ``'it'"'"'s'``. The run is one item
    that is never tried again with another length: with a pattern for each character, a line with a
    part of the value takes exponential time.
    """
    forms = [_BACKSLASH, *_encoded("\\")]
    longest = _ESCAPES_MAX
    if "'" in text:
        forms = [*_escaped("'"), *_escaped('"'), *forms, "['\"]", *_encoded("'"), *_encoded('"')]
        longest = _QUOTES_MAX
    return f"(?>(?:{'|'.join(forms)}){{{len(text)},{len(text) * longest + _ESCAPES_MAX}}})"


def _character(char: str, *, after_run: bool) -> str:
    """Return a pattern for one character in any form but base64 and hexadecimal.

    Backslashes before it are those of any quoting around it. After a run they are a part of that.
    """
    if char in _NEVER_ESCAPED:
        return re.escape(char)
    quoted = "|".join((re.escape(char), *_encoded(char)))
    before = "" if after_run else f"{_BACKSLASH}{{0,{_ESCAPES_MAX}}}"
    forms = [f"{before}(?:{quoted})", *_escaped(char, "" if after_run else _ESCAPED)]
    if _UNDECODED.match(char):
        forms.append("\N{REPLACEMENT CHARACTER}")
    return f"(?:{'|'.join(forms)})"


def _encoded(char: str) -> Iterator[str]:
    """Return patterns for the forms of a character without a backslash."""
    number = ord(char)
    yield f"(?i:{''.join(f'%(?:25)*{byte:02x}' for byte in _bytes(char))})"
    if char == " ":
        yield r"\+|%(?:25)*2[bB]"
    if char not in _NUMBERED and char.isascii():
        return
    names = [f"#0*{number}", f"#x0*{number:x}", codepoint2name.get(number, "")]
    if char == "'":
        names.append("apos")
    entity = "|".join(filter(None, names)).replace("#", "(?:#|%(?:25)*23)")
    yield f"(?i:(?:&|%(?:25)*26)(?:amp{_SEMICOLON})*(?:{entity}){_SEMICOLON})"


def _escaped(char: str, first: str = _ESCAPED) -> Iterator[str]:
    """Return patterns for the forms of a character that begin with a backslash.

    ``first`` matches those before its first byte.
    """
    number, data = ord(char), _bytes(char)
    if char in _LETTERS:
        yield first + _LETTERS[char]
    if char not in _NUMBERED and char.isascii() and char.isprintable():
        return
    units = char.encode("utf-16-be", "surrogatepass").hex()
    numbers = [
        first + _ESCAPED.join(f"x{byte:02x}" for byte in data),
        first + _ESCAPED.join(f"u{units[at : at + 4]}" for at in range(0, len(units), 4)),
        f"{first}U{number:08x}",
    ]
    if number < 0x100:
        numbers.append(f"{first}x{number:02x}")
    yield f"(?i:{'|'.join(numbers)})"
    yield first + _ESCAPED.join(f"{byte:03o}" for byte in data)
