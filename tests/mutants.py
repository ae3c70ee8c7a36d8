"""Break one rule of the code at a time, and check that its tests fail.

    python -m tests.mutants [NAME …]

``mutants.toml`` has the rules. Each is applied in a copy of the working tree, so the files here
stay as they are. A mutant is killed if pytest ran and every one of its tests failed. The exit code
is 1 if a mutant survives, or if a test fails in the unchanged copy.

Not here: wrong rules that the engine's tests apply themselves (``tests.engine.mutants``).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
ROWS: Final = Path(__file__).parent / "mutants.toml"
FAILED: Final = 1
"""Exit code of pytest if tests ran and failed. Others mean that it could not run them."""


class Mutant(NamedTuple):
    """One row of the table."""

    name: str
    file: str
    """Path from the root."""
    old: str
    """Text that occurs once in the file."""
    new: str
    tests: list[str]
    """Node ids of pytest. Every one fails with the new text."""


def rows() -> list[Mutant]:
    """Read the table."""
    return [Mutant(**row) for row in tomllib.loads(ROWS.read_text(encoding="utf-8"))["mutant"]]


def copy_tree(target: Path) -> None:
    """Copy the files of the working tree that git does not ignore, links as links."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if os.path.lexists(ROOT / name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)


def run(tests: Iterable[str], tree: Path) -> tuple[int, str]:
    """Run tests in a copy of the tree; return the exit code of pytest and its output."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=tree,
        # Processes that a test starts in another folder import the copy, too.
        env={**os.environ, "PYTHONPATH": str(tree)},
        check=False,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def is_killed(mutant: Mutant, tree: Path) -> bool:
    """Return whether the mutant's tests fail. The file is restored afterwards."""
    path = tree / mutant.file
    before = path.read_text(encoding="utf-8")
    if before.count(mutant.old) != 1:
        raise ValueError(f"{mutant.file} has {mutant.old!r} {before.count(mutant.old)} times")
    try:
        _write(path, before.replace(mutant.old, mutant.new))
        code, output = run(mutant.tests, tree)
    finally:
        _write(path, before)
    if code not in (0, FAILED):
        raise ValueError(f"pytest could not run the tests of {mutant.name}:\n{output}")
    return code == FAILED and not re.search(r"\b\d+ passed", output)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    # A text of the same length within the same second would be taken from the cache.
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def main(names: Sequence[str]) -> int:
    """Run the named mutants, or all; return the exit code."""
    table = {mutant.name: mutant for mutant in rows()}
    if unknown := set(names) - table.keys():
        sys.stderr.write(f"no such mutant: {', '.join(sorted(unknown))}\n")
        return 2
    chosen = [table[name] for name in names] or list(table.values())
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="lockstep-mutants-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        code, output = run(dict.fromkeys(test for one in chosen for test in one.tests), tree)
        if code != 0:
            sys.stdout.write(f"tests fail without a mutant:\n{output}\n")
            return 1
        for mutant in chosen:
            began = time.monotonic()
            killed = is_killed(mutant, tree)
            survivors += not killed
            word = "killed" if killed else "SURVIVED"
            sys.stdout.write(f"{mutant.name:45} {word:8} {time.monotonic() - began:5.1f} s\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(chosen) - survivors} of {len(chosen)} mutants killed\n")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
