"""Check that documented parameters exist, in the order of the signature, and names of modules.

    python docs/parameters.py    exit 1 with each docstring that does not match

A docstring may leave parameters out. Names are read from a section ``Parameters`` in numpydoc's
form; several names may share a line. A dotted name in backquotes that begins with a package, such
as ``domain.limits``, must be a module, or a name that one defines; pages are read, too.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from language import PACKAGES, ROOT

_SECTION: Final = re.compile(r"^Parameters\n-+\n(.*?)(?:\n\n[A-Z]\w+\n-+\n|\Z)", re.DOTALL | re.M)
_ROOTS: Final = "|".join([*(set(PACKAGES) - {"lockstep", "docker"}), "client", "cli"])
_DOTTED: Final = re.compile(rf"`((?:lockstep\.)?(?:{_ROOTS})(?:\.\w+)+)`")
_DEFINED: Final = r"^\s*(?:class |(?:async )?def |self\.)?{name}\b(?:\(|:|\[| =|,)"
_NAMES: Final = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : .*)?$", re.MULTILINE)


def main() -> int:
    """Print each docstring that names other parameters than its signature."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {problem}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if not any(parent.is_symlink() for parent in path.parents)
        for line, problem in problems(path.read_text(encoding="utf-8"))
    ]
    wrong += absent_names()
    for each in wrong:
        sys.stderr.write(f"{each}\n")
    return 1 if wrong else 0


def problems(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and description of each docstring of a module that does not match."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        documented = parameters_of(ast.get_docstring(node) or "")
        taken = signature_of(node)
        if unknown := [name for name in documented if name not in taken]:
            yield node.lineno, f"{node.name} documents {', '.join(unknown)}, which it does not take"
        elif sorted(documented, key=taken.index) != documented:
            yield node.lineno, f"{node.name} documents its parameters in another order"


def absent_names() -> list[str]:
    """Return a line for each dotted name of a module or page that does not exist."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    pages.remove(ROOT / "CHANGELOG.md")
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return [
        f"{path.relative_to(ROOT)}: there is no {name}"
        for path in (*pages, *modules)
        if not any(parent.is_symlink() for parent in path.parents)
        for name in _DOTTED.findall(path.read_text(encoding="utf-8"))
        if not exists(name)
    ]


def exists(dotted: str) -> bool:
    """Return whether a dotted name is a folder, a module, or a name that a module defines."""
    first, *names = dotted.removeprefix("lockstep.").split(".")
    folder = ROOT / first if (ROOT / first).is_dir() else ROOT / "lockstep" / first
    while names and (folder / names[0]).is_dir():
        folder /= names.pop(0)
    module = folder / f"{names[0]}.py" if names else folder
    if len(names) < 2:
        return module.exists()
    pattern = _DEFINED.format(name=re.escape(names[-1]))
    return module.exists() and bool(re.search(pattern, module.read_text("utf-8"), re.MULTILINE))


def parameters_of(docstring: str) -> list[str]:
    """Return the names of the section ``Parameters``."""
    section = _SECTION.search(docstring)
    lines = _NAMES.findall(section[1]) if section else []
    return [name.lstrip("*") for line in lines for name in line.split(", ")]


def signature_of(node: ast.AST) -> list[str]:
    """Return the parameters of a function; of a class those of ``__init__``, or its fields."""
    if isinstance(node, ast.ClassDef):
        made = [each for each in node.body if isinstance(each, ast.FunctionDef)]
        inits = [each for each in made if each.name == "__init__"]
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
        if not inits:
            return [each.target.id for each in fields if isinstance(each.target, ast.Name)]
        node = inits[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    arguments = node.args
    found = [*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs]
    return [each.arg for each in (*found, arguments.kwarg) if each is not None]


if __name__ == "__main__":
    sys.exit(main())
