"""Figures of the prose and the structure of the code, compared with limits.

    python docs/language.py            print the figures, their limits and goals
    python docs/language.py --check    exit 1 if a figure is above its limit or a name is retired

Four texts are counted: docstrings and comments, messages (string literals of several words), the
documentation, and the text of the dashboard's pages. The docstrings and comments of the tests and
the benchmarks are a second reading, whose goals are twice those of the product.

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
TEST_FOLDERS: Final = ("tests", "benchmarks")
WITH_PAGES: Final = ("docs", "benchmarks", "examples")
OPENERS: Final = frozenset("What Which Whether Where How Who Whoever Why That Those".split())
DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
LIMITS: Final = {
    # Figure: (limit, goal)
    "what": (1.5, 1.5),
    "who, whoever, whom": (0.5, 0.5),
    "nobody, somebody, everybody, anybody": (0.3, 0.3),
    "anew, lest, foretold, mend, mended, thereof": (0.05, 0.05),
    "docstrings with a wh-word first, %": (1.5, 1.5),
    "class names in several modules": (5, 5),
    "lines over 100 columns": (43, 0),
    "functions with over 15 decisions": (0, 0),
    "functions over 60 lines": (3, 3),
}
"""The first four are uses per 1,000 words of docstrings and comments."""
TESTS_PER_PRODUCT: Final = (1.35, 1.35)
"""Tokens of the tests for each token of the product; comments and layout do not count."""
TEST_LIMITS: Final = {
    # Figure of the tests and benchmarks: (limit, goal). The goal is twice the product's.
    "what": (3.0, 3.0),
    "who, whoever, whom": (1.0, 1.0),
    "nobody, somebody, everybody, anybody": (0.6, 0.6),
    "anew, lest, foretold, mend, mended, thereof": (0.1, 0.1),
    "docstrings with a wh-word first, %": (3.0, 3.0),
}
TEXT_LIMITS: Final = {
    # Text: limits of the first four figures; their goals are those of LIMITS.
    "messages": (1.5, 0.5, 0.3, 0.05),
    "documentation": (1.5, 0.5, 0.3, 0.15),
    "pages": (2.0, 0.2, 0.5, 0.4),
}
RETIRED: Final = frozenset(
    "anew aside beat beats bell bells census doorbell floods foretold goes_on hear hollow kin"
    " meeting mended outflow person probed pulse pulses pump pumps rang rider rings rung ship"
    " shipped shipper shippers shipping ships stand_in tethered thinner unbuilt"
    " unshipped whoever".split()
)
"""Words of the project's former vocabulary. No name in the code is one of them or contains one."""
COLUMNS: Final = 100
LINES_MAX: Final = 60
"""Of a function, without its docstring."""
DECISIONS_MAX: Final = 15
"""Of a function without those inside it: branches, loops, handlers, conditions; 1 for itself."""
_FUNCTION: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_DECISION: Final = (
    *(ast.If, ast.For, ast.While, ast.IfExp),
    *(ast.ExceptHandler, ast.comprehension, ast.match_case),
)
_LAYOUT: Final = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
)
_PRAGMA: Final = re.compile(r"# (?:noqa|type: ignore).*")
_WORD: Final = re.compile(r"[a-z']+")
_NAME_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_MESSAGE: Final = re.compile(r"(?:[A-Za-z]+ ){2}")
_CODE_BLOCK: Final = re.compile(r"```.*?```", re.DOTALL)
_COMMENT: Final = re.compile(r"/\*.*?\*/|^\s*//[^\n]*", re.DOTALL | re.MULTILINE)
_PAGE_TEXT: Final = re.compile(r'"([^"\n]*)"|`([^`]*)`|>([^<>{}]+)<')


@dataclass
class Reading:
    """Counts over all modules."""

    words: Counter[str] = field(default_factory=Counter)
    openers: Counter[bool] = field(default_factory=Counter)
    classes: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    retired: set[str] = field(default_factory=set)
    long_lines: int = 0
    complex: list[str] = field(default_factory=list)
    long: list[str] = field(default_factory=list)
    tokens: int = 0

    def add(self, text: str) -> None:
        """Add one module."""
        self.long_lines += sum(
            len(_PRAGMA.sub("", line).rstrip()) > COLUMNS for line in text.splitlines()
        )
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, DOCUMENTED):
                self._add_docstring(ast.get_docstring(node))
            if isinstance(node, ast.ClassDef):
                self.classes[node.name] += 1
            if isinstance(node, _FUNCTION):
                self._add_function(node)
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and _MESSAGE.search(node.value)
            ):
                self.messages.update(_WORD.findall(node.value.lower()))
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                self._add_attribute_docstring(node.value.value)
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            self.tokens += token.type not in _LAYOUT
            if token.type == tokenize.COMMENT:
                self._add_words(token.string)
            elif token.type == tokenize.NAME and RETIRED & {
                token.string,
                *map(str.lower, _NAME_PART.findall(token.string)),
            }:
                self.retired.add(token.string)

    def _add_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if 1 + sum(map(decisions, node.body)) > DECISIONS_MAX:
            self.complex.append(node.name)
        body = node.body[1:] if ast.get_docstring(node) else node.body
        documentation = body[0].lineno - node.body[0].lineno if body else 0
        if (node.end_lineno or 0) - node.lineno + 1 - documentation > LINES_MAX:
            self.long.append(node.name)

    def _add_docstring(self, docstring: str | None) -> None:
        if docstring:
            self._add_words(docstring)
            self.openers[docstring.split(maxsplit=1)[0] in OPENERS] += 1

    def _add_attribute_docstring(self, text: object) -> None:
        """Remove a docstring from the messages: the syntax tree has it among the strings."""
        if isinstance(text, str) and _MESSAGE.search(text):
            self.messages.subtract(_WORD.findall(text.lower()))

    def _add_words(self, text: str) -> None:
        self.words.update(_WORD.findall(text.lower()))

    def figures(self) -> dict[str, float]:
        """Return each figure of ``LIMITS``."""
        found = dict(zip(list(LIMITS)[:4], frequencies(self.words), strict=True))
        openers = 100 * self.openers[True] / self.openers.total()
        several = sum(count > 1 for count in self.classes.values())
        counts = (several, self.long_lines, len(self.complex), len(self.long))
        others = (openers, *map(float, counts))
        return found | dict(zip(list(LIMITS)[4:], others, strict=True))


def decisions(node: ast.AST) -> int:
    """Return the number of decisions below a node, without those of functions in it."""
    if isinstance(node, _FUNCTION):
        return 0
    own = len(node.values) - 1 if isinstance(node, ast.BoolOp) else isinstance(node, _DECISION)
    return own + sum(map(decisions, ast.iter_child_nodes(node)))


def frequencies(words: Counter[str]) -> list[float]:
    """Return the first four figures of ``LIMITS`` for a text."""
    return [
        1000 * sum(words[name] for name in names.split(", ")) / max(1, words.total())
        for names in list(LIMITS)[:4]
    ]


def words_of(text: str) -> Counter[str]:
    """Return the number of uses of each word."""
    return Counter(_WORD.findall(text.lower()))


def documentation() -> Counter[str]:
    """Return the words of the handwritten and generated pages, without blocks of code."""
    files = [
        *ROOT.glob("*.md"),
        *(path for name in WITH_PAGES for path in (ROOT / name).rglob("*.md")),
    ]
    pages = [path.read_text(encoding="utf-8") for path in files if path.name != "CHANGELOG.md"]
    return words_of("\n".join(_CODE_BLOCK.sub("", page) for page in pages))


def pages() -> Counter[str]:
    """Return the words that the dashboard may show.

    Its string literals and the text of its elements.
    """
    found: Counter[str] = Counter()
    for path in (ROOT / "dashboard/src").rglob("*.ts*"):
        if "generated" not in path.parts and ".test." not in path.name:
            text = _COMMENT.sub("", path.read_text(encoding="utf-8"))
            found += words_of(
                " ".join(part for parts in _PAGE_TEXT.findall(text) for part in parts)
            )
    return found


def modules(*folders: str) -> Iterator[Path]:
    """Yield the Python files of the folders. Links, as those in ``lockstep/``, are not followed."""
    for name in folders:
        for folder, _, files in os.walk(ROOT / name):
            yield from (Path(folder) / file for file in files if file.endswith(".py"))


def reading_of(*folders: str) -> Reading:
    """Return the counts over all Python files of the folders."""
    reading = Reading()
    for path in modules(*folders):
        reading.add(path.read_text(encoding="utf-8"))
    return reading


def main() -> int:
    """Print the figures; return 1 if ``--check`` is given and one is above its limit."""
    reading = reading_of(*PACKAGES)
    tests = reading_of(*TEST_FOLDERS).figures()
    ratio = reading_of("tests").tokens / reading.tokens
    found = [(name, value, *LIMITS[name]) for name, value in reading.figures().items()]
    found += [(f"tests: {name}", tests[name], *TEST_LIMITS[name]) for name in TEST_LIMITS]
    found.append(("tests: tokens for each of the product", ratio, *TESTS_PER_PRODUCT))
    texts = {"messages": reading.messages, "documentation": documentation(), "pages": pages()}
    for text, words in texts.items():
        for name, value, limit in zip(LIMITS, frequencies(words), TEXT_LIMITS[text], strict=False):
            found.append((f"{text}: {name}", value, limit, LIMITS[name][1]))
    above = []
    for name, value, limit, goal in found:
        line = f"{name}: {value:.2f} (limit {limit:g}, goal {goal:g})"
        if "--check" not in sys.argv:
            sys.stdout.write(f"{line}\n")
        if value > limit:
            above.append(line)
    for line in above:
        sys.stderr.write(f"above its limit: {line}\n")
    for name in reading.complex:
        sys.stderr.write(f"a function with over {DECISIONS_MAX} decisions: {name}\n")
    for name in sorted(reading.retired):
        sys.stderr.write(f"a retired name: {name}; docs/GLOSSARY.md has the terms\n")
    return int("--check" in sys.argv and bool(above or reading.retired))


if __name__ == "__main__":
    sys.exit(main())
