"""Figures of the prose and the structure of the code, compared with limits.

    python docs/language.py            print the figures, their limits and goals
    python docs/language.py --check    exit 1 if a figure is above its limit

The limits are a ratchet: a change that lowers a figure lowers its limit; no change raises one. The
goals are what procrastinate and structlog reach under the same rules.
"""

from __future__ import annotations

import ast
import io
import os
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = (
    *("api", "broker", "docker", "domain", "engine", "lockstep"),
    *("migrations", "scheduler", "storage", "system", "worker"),
)
OPENERS: Final = frozenset("What Which Whether Where How Who Whoever Why That Those".split())
BRANCHES: Final = (
    *(ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler),
    *(ast.comprehension, ast.match_case),
)
DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
LIMITS: Final = {
    # Figure: (limit, goal)
    "what": (5.4, 1.5),
    "who, whoever, whom": (0.5, 0.5),
    "nobody, somebody, everybody, anybody": (0.51, 0.3),
    "anew, lest, foretold, mend, mended, thereof": (0.15, 0.05),
    "docstrings with a wh-word first, %": (8.9, 1.5),
    "decisions per 10 lines": (1.6, 1.2),
    "class names in several modules": (35, 5),
}
"""The first four are uses per 1,000 words of docstrings and comments."""


@dataclass
class Reading:
    """Counts over all modules."""

    words: Counter[str] = field(default_factory=Counter)
    openers: Counter[bool] = field(default_factory=Counter)
    classes: Counter[str] = field(default_factory=Counter)
    decisions: int = 0
    lines: int = 0

    def add(self, text: str) -> None:
        """Add one module."""
        stripped = [line.strip() for line in text.splitlines()]
        self.lines += sum(bool(line) and not line.startswith("#") for line in stripped)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, DOCUMENTED):
                self._add_docstring(ast.get_docstring(node))
            if isinstance(node, ast.ClassDef):
                self.classes[node.name] += 1
            self.decisions += isinstance(node, BRANCHES)
            if isinstance(node, ast.BoolOp):
                self.decisions += len(node.values) - 1
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                self._add_words(token.string)

    def _add_docstring(self, docstring: str | None) -> None:
        if docstring:
            self._add_words(docstring)
            self.openers[docstring.split(maxsplit=1)[0] in OPENERS] += 1

    def _add_words(self, text: str) -> None:
        self.words.update(re.findall(r"[a-z']+", text.lower()))

    def figures(self) -> dict[str, float]:
        """Return each figure of ``LIMITS``."""
        found = {
            names: 1000 * sum(self.words[name] for name in names.split(", ")) / self.words.total()
            for names in list(LIMITS)[:4]
        }
        openers = 100 * self.openers[True] / self.openers.total()
        several = sum(count > 1 for count in self.classes.values())
        others = (openers, 10 * self.decisions / self.lines, float(several))
        return found | dict(zip(list(LIMITS)[4:], others, strict=True))


def modules() -> Iterator[Path]:
    """Yield the Python files of the product. Links, as those in ``lockstep/``, are not followed."""
    for package in PACKAGES:
        for folder, _, files in os.walk(ROOT / package):
            yield from (Path(folder) / name for name in files if name.endswith(".py"))


def main() -> int:
    """Print the figures; return 1 if ``--check`` is given and one is above its limit."""
    reading = Reading()
    for path in modules():
        reading.add(path.read_text(encoding="utf-8"))
    above = []
    for name, value in reading.figures().items():
        limit, goal = LIMITS[name]
        line = f"{name}: {value:.2f} (limit {limit:g}, goal {goal:g})"
        if "--check" not in sys.argv:
            sys.stdout.write(f"{line}\n")
        if value > limit:
            above.append(line)
    for line in above:
        sys.stderr.write(f"above its limit: {line}\n")
    return int("--check" in sys.argv and bool(above))


if __name__ == "__main__":
    sys.exit(main())
