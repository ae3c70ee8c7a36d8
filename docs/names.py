"""Check of the names of packages: none may exist in the repository's root alone.

    python docs/names.py    exit 1 if a file names such a package

The folders at the root are parts of ``lockstep``: an installed wheel has ``lockstep.migrations``
and no ``migrations``. An editable install has both, so no test there finds the wrong name.
import-linter and ruff check imports. This check reads the other places of a name: arguments of
functions that import or find a package, and arguments of ``-m``. A module of the wheel may also
name no tool of the repository, such as ``benchmarks``, and contain no text that is the dotted path
of a module of the root; names of loggers are no such paths.
"""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = "lockstep"
IMPORTERS: Final = frozenset(
    "__import__ contents files find_loader find_spec get_data import_module is_resource load_module"
    " open_binary open_text PackageLoader read_binary read_text resolve_name run_module"
    " walk_packages".split()
)
"""Functions whose first argument is the name of a package."""
LOGGERS: Final = frozenset({"get_logger", "getLogger"})
_NAME: Final = re.compile(r"([A-Za-z_]\w*)(\.[A-Za-z_]\w*)*(?::[A-Za-z_][\w.]*)?$")
_OPTION: Final = re.compile(r"(?:^|\s)-m[\s\"',]+([A-Za-z_][\w.]*)")
_TEXTS: Final = ("Dockerfile", "Makefile", "*.md", "*.sh", "*.toml", "*.yaml", "*.yml", "*.txt")


def parts() -> frozenset[str]:
    """Return the packages of the root that the wheel has below ``lockstep``."""
    links = (path for path in (ROOT / PACKAGE).iterdir() if path.is_symlink())
    return frozenset(path.name for path in links)


def tools() -> frozenset[str]:
    """Return the other packages and modules of the root; the wheel has none of them."""
    folders = {path.parts[0] for path in _tracked("*.py") if len(path.parts) > 1}
    modules = {path.stem for path in _tracked("*.py") if len(path.parts) == 1}
    return frozenset((folders | modules) - {PACKAGE} - parts())


def problems() -> Iterator[str]:
    """Yield a line for each wrong name of the repository."""
    inside, outside = parts(), tools()
    for path in _tracked("*.py"):
        packaged = path.parts[0] == PACKAGE or path.parts[0] in inside
        forbidden = inside | outside if packaged else inside
        text = (ROOT / path).read_text(encoding="utf-8")
        for line, name in named(text, forbidden, texts=packaged):
            yield f"{path}:{line}: {name!r} is a package of the repository's root"
    for path in _tracked(*_TEXTS):
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), 1):
            for name in _OPTION.findall(line):
                if name.partition(".")[0] in inside:
                    yield f"{path}:{number}: {name!r} is a package of the repository's root"


def named(text: str, forbidden: frozenset[str], *, texts: bool) -> list[tuple[int, str]]:
    """Return line and name of each forbidden package that the source of a module names.

    ``texts`` includes dotted paths and commands in any text.
    """
    wrong: set[tuple[int, str]] = set()
    nodes = list(ast.walk(ast.parse(text)))
    constants = {
        node.targets[0].id: node.value
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    free = {
        id(argument)
        for node in nodes
        if isinstance(node, ast.Call) and _called(node) in LOGGERS
        for argument in node.args
    }
    for node in nodes:
        found = [_text(constants.get(getattr(each, "id", ""), each)) for each in _places(node)]
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.append(node.module or "")
        elif texts and isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += _OPTION.findall(node.value)
            if id(node) not in free and _is_path(node.value):
                found.append(node.value)
        wrong.update(
            (node.lineno, name)  # type: ignore[attr-defined] -- an expression or import
            for name in found
            if re.split("[.:]", name)[0] in forbidden
        )
    return sorted(wrong)


def _places(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions in a call, list or tuple that are the name of a package."""
    words: list[ast.expr] = []
    if isinstance(node, ast.Call):
        words = node.args
        if _called(node) in IMPORTERS:
            yield from words[:1]
            yield from (each.value for each in node.keywords)
    elif isinstance(node, ast.List | ast.Tuple):
        words = node.elts
    yield from (word for option, word in itertools.pairwise(words) if _text(option) == "-m")


def _is_path(text: str) -> bool:
    """Return whether a text is the dotted path of a module of the root."""
    first, _, rest = text.partition(".")
    below = ROOT / first / re.split("[.:]", rest)[0]
    return bool(_NAME.match(text) and rest) and (
        below.is_dir() or below.with_suffix(".py").is_file()
    )


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _text(node: ast.expr) -> str:
    """Return the value of a literal; of an f-string its beginning."""
    if isinstance(node, ast.JoinedStr) and node.values:
        return _text(node.values[0])
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _tracked(*patterns: str) -> list[Path]:
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [Path(name) for name in listed.split("\0") if name]
    return [path for path in paths if (ROOT / path).is_file()]


def main() -> int:
    """Print each wrong name; return 1 if there is one."""
    found = list(problems())
    for line in found:
        sys.stderr.write(f"{line}; an installed wheel does not have it\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
