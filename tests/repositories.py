"""Real git repositories in folders, for the tests of code from git.

Not here: the tests.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

_OPTIONS = (
    "user.name=Ada",
    "user.email=ada@example.org",
    "tag.gpgSign=false",
    "commit.gpgSign=false",
)


class Repository:
    """A new repository with the branch ``main``, reached as ``url``."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.url = f"file://{folder}"
        subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(folder)], check=True)

    def git(self, *words: str) -> str:
        """Return the output of git."""
        options = [word for option in _OPTIONS for word in ("-c", option)]
        command = ["git", "-C", str(self.folder), *options, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, **files: str) -> str:
        """Write ``name.py`` for each name, and commit everything; return the commit's id."""
        for name, text in files.items():
            (self.folder / f"{name}.py").write_text(text)
        self.git("add", "-A")
        self.git("commit", "--quiet", "--message", "x")
        return self.git("rev-parse", "HEAD")
