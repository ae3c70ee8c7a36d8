r"""Patterns of ``.lockstepignore`` and ``.gitignore``, with git's meaning.

The last line that matches decides. A line without a slash in its middle matches names at any depth,
others the whole path. ``*``, ``?`` and ``[a-z]`` match no slash; ``**`` between slashes matches
any number of folders; ``\`` takes the meaning from the next character.

Not here: the walk of the folder (``client.archive``).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

IGNORE_FILES: Final = (".lockstepignore", ".gitignore")
_CLASSES: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": r" \t",
    "digit": "0-9",
    "lower": "a-z",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\s",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
_SET: Final = re.compile(r"\[(?P<not>[!^]?)(?P<body>\]?(?:\[:\w+:\]|\\.|[^\]\\])*)\]", re.DOTALL)
_IN_SET: Final = re.compile(r"\[:(?P<named>\w+):\]|\\(?P<plain>.)|(?P<other>.)", re.DOTALL)


class _Line(NamedTuple):
    pattern: re.Pattern[str]
    is_kept: bool
    folders_only: bool
    line: str
    """The line with its number, for the list of excluded paths."""


class Ignore:
    """The patterns of one ignore file."""

    def __init__(self, text: str, file: str = ""):
        self._rules: list[_Line] = []
        for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
            line = _without_spaces(raw.removesuffix("\r"))
            pattern = line.removeprefix("!")
            path = pattern.removesuffix("/")
            found = None if not path or line.startswith("#") else _regex(path)
            if found is not None:
                is_folder = pattern.endswith("/")
                shown = f"{file} line {number} ({line})"
                self._rules.append(_Line(found, line.startswith("!"), is_folder, shown))

    @classmethod
    def of(cls, folder: Path) -> Ignore:
        """Return the patterns at the top of a folder."""
        for name in IGNORE_FILES:
            file = folder / name
            if file.is_file():
                # Names of files that are not UTF-8 are read in the same way.
                return cls(file.read_bytes().decode("utf-8", "surrogateescape"), name)
        return cls("")

    def rule(self, path: str, *, is_folder: bool) -> str | None:
        """Return the line that leaves out ``path``, which is relative to the top and has ``/``.

        None if it is kept.
        """
        found = None
        for rule in self._rules:
            if (is_folder or not rule.folders_only) and rule.pattern.fullmatch(path):
                found = None if rule.is_kept else rule.line
        return found


def _without_spaces(line: str) -> str:
    """Return a line without the spaces at its end, unless one has a backslash before it."""
    kept = line.rstrip(" ")
    backslashes = len(kept) - len(kept.rstrip("\\"))
    return kept + " " if len(kept) < len(line) and backslashes % 2 else kept


def _regex(path: str) -> re.Pattern[str] | None:
    """Return an expression for whole relative paths; None for a pattern that matches nothing."""
    parts = path.removeprefix("/").split("/")
    regex = "" if "/" in path else "(?:.*/)?"
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        if part == "**" and "/" in path:
            regex += ".+" if is_last else "(?:.*/)?"
            continue
        translated = _part(part)
        if translated is None:
            return None
        regex += translated if is_last else f"{translated}/"
    try:
        return re.compile(regex, re.DOTALL)
    except re.error:  # a range such as z-a
        return None


def _part(text: str) -> str | None:
    """Translate one part of a path; None if it matches nothing."""
    regex, at = "", 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "*":
            regex += "" if regex.endswith("[^/]*") else "[^/]*"
        elif char == "?":
            regex += "[^/]"
        elif char == "\\":
            if at == len(text):
                return None
            regex += re.escape(text[at])
            at += 1
        elif char == "[":
            found = _SET.match(text, at - 1)
            if found is None:
                return None
            regex += _set(found["body"], is_negated=bool(found["not"]))
            at = found.end()
        else:
            regex += re.escape(char)
    return regex


def _set(body: str, *, is_negated: bool) -> str:
    """Translate the inside of a set of characters such as ``a-z_``."""
    items = ""
    for found in _IN_SET.finditer(body):
        is_bound = found["other"] == "-" and 0 < found.start() < len(body) - 1
        if found["named"] is not None:
            items += _CLASSES.get(found["named"], "")
        else:
            items += "-" if is_bound else re.escape(found["plain"] or found["other"])
    return f"(?!/)[{'^' if is_negated else ''}{items}]"
