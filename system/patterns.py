"""Patterns of names, as in ``.gitignore``: a later one counts more, and ``!`` takes names away.

A pattern without a slash matches at any depth, one that ends with a slash all that is below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pathspec import PathSpec
from pathspec.patterns.gitignore import GitIgnorePatternError


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
        for pattern in patterns:
            if not pattern.strip() or pattern.startswith("#"):
                raise PatternError(f"{pattern!r} selects nothing")
        self._takes_all = list(patterns) == ["**"]
        self._exact = frozenset(patterns)
        try:
            self._spec = PathSpec.from_lines("gitignore", patterns)
        except GitIgnorePatternError:
            raise PatternError(f"{' '.join(patterns)!r} is no pattern") from None

    def select(self, names: Iterable[str]) -> set[str]:
        """Return the selected names. One that equals a pattern is selected in any case."""
        return set(names) if self._takes_all else {name for name in names if self._matches(name)}

    def _matches(self, name: str) -> bool:
        return name in self._exact or self._spec.match_file(name)
