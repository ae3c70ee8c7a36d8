r"""Patterns of names, as in ``.gitignore``: a later one counts more, and ``!`` takes names away.

A pattern without a slash matches at any depth, and one that matches a folder selects all that is
below it. ``\`` has no meaning but before a first ``#`` or ``!``.

Jobs choose both patterns and names. The usual translation of a pattern into one regular expression
takes years for ``*a*a*a*a*b``; here each part of a name is matched by itself, in linear time.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

_ANY_FOLDERS: Final = "**"
_REMEMBERED_MAX: Final = 100_000
"""Names whose answer is remembered: an agent asks for the same ones every minute."""


class PatternError(ValueError):
    """A text that is no pattern."""


class Patterns:
    """Names that a list of patterns selects.

    Raises
    ------
    PatternError
        If one of them is none.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = [_Pattern(pattern) for pattern in reversed(patterns)]
        self._takes_all = list(patterns) == [_ANY_FOLDERS]
        self._exact = frozenset(patterns)
        self._remembered: dict[str, bool] = {}

    def select(self, names: Iterable[str]) -> set[str]:
        """Return the selected names. One that equals a pattern is selected in any case."""
        return {name for name in names if self._takes_all or self._matches(name)}

    def _matches(self, name: str) -> bool:
        found = self._remembered.get(name)
        if found is None:
            parts = name.split("/")
            last = next((each for each in self._patterns if each.matches(parts)), None)
            found = name in self._exact or (last is not None and not last.takes_away)
            if len(self._remembered) == _REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[name] = found
        return found


class _Pattern:
    """One pattern, as parts of which each matches a part of a name."""

    def __init__(self, text: str) -> None:
        self.takes_away = text.startswith("!")
        body = text.removeprefix("!")
        if body.startswith(("\\#", "\\!")):
            body = body[1:]
        parts = [part for part in body.split("/") if part]
        if not parts or text.startswith("#") or not body.strip():
            raise PatternError(f"{text!r} selects nothing")
        self._folders_only = body.endswith("/")
        if len(parts) == 1 and not body.startswith("/"):
            parts.insert(0, _ANY_FOLDERS)
        if parts[-1] == _ANY_FOLDERS:
            parts.append("*")
        self._parts = [None if part == _ANY_FOLDERS else _matcher(part) for part in parts]

    def matches(self, parts: Sequence[str]) -> bool:
        """Return whether it matches the name of these parts, or a folder above it."""
        reached = self._with_skipped({0})
        for count, part in enumerate(parts, start=1):
            following = set()
            for at in reached - {len(self._parts)}:
                matcher = self._parts[at]
                if matcher is None:
                    following.add(at)
                elif matcher(part):
                    following.add(at + 1)
            reached = self._with_skipped(following)
            is_whole_name = count == len(parts)
            if len(self._parts) in reached and not (is_whole_name and self._folders_only):
                return True
        return False

    def _with_skipped(self, reached: set[int]) -> set[int]:
        """Add what is reached if ``**`` stands for no folder."""
        for at in sorted(reached):
            while at < len(self._parts) and self._parts[at] is None:
                at += 1  # noqa: PLW2901 -- the walk goes on from here
                reached.add(at)
        return reached


def _matcher(part: str) -> Callable[[str], object]:
    # ``fnmatch`` writes expressions that do not go back over what a star has passed.
    return re.compile(fnmatch.translate(part.replace("[^", "[!"))).match
