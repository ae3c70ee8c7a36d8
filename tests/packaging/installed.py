"""Environments outside the repository with the wheel installed, and with no package that its
metadata does not require.

The required packages are those of the environment that runs the tests, file by file, so nothing is
downloaded: a package that pyproject.toml does not name is absent, as it is after ``pip install``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from zipfile import Path as ZipPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
EXTRAS = ("", "server", "node", "all")
WHOLE_ENVIRONMENT = ("LOCKSTEP_", "PYTHON", "VIRTUAL_ENV", "COVERAGE_")
"""Prefixes of variables that a fresh shell does not have."""


def requires(name: str) -> list[str]:
    """Return the requirements of a package that is installed here."""
    return metadata.distribution(name).requires or []


def closure(
    requirements: Iterable[str], requires: Callable[[str], list[str]] = requires
) -> set[str]:
    """Return the names of these packages and of all that they need."""
    waiting = [Requirement(line) for line in requirements]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        one = waiting.pop()
        key = canonicalize_name(one.name), frozenset(one.extras)
        if key in seen or (one.marker and not one.marker.evaluate({"extra": ""})):
            continue
        seen.add(key)
        for line in requires(one.name):
            needed = Requirement(line)
            if needed.marker is None or any(
                needed.marker.evaluate({"extra": extra}) for extra in ("", *one.extras)
            ):
                needed.marker = None
                waiting.append(needed)
    return {name for name, _ in seen}


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this tree, with the pages that are already built."""
    words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    pip(*words, str(ROOT), LOCKSTEP_PAGES="skip")
    (wheel,) = folder.glob("*.whl")
    return wheel


def pip(*words: str, **environment: str) -> str:
    """Run pip of this environment outside the repository; return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *words],
        env={**os.environ, **environment},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Installed:
    """A virtual environment with the wheel, and a working folder."""

    def __init__(self, folder: Path, wheel: Path, extra: str):
        self.folder = folder
        self.extra = extra
        self.bin = folder / "venv" / "bin"
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        done = subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=False
        )
        assert done.returncode == 0
        (self.packages,) = (folder / "venv").glob("lib/python*/site-packages")
        own = metadata.PathDistribution(
            ZipPath(wheel, f"{'-'.join(wheel.name.split('-')[:2])}.dist-info/")  # type: ignore[arg-type]
        )
        name = canonicalize_name(own.metadata["Name"])
        wanted = f"{name}[{extra}]"
        needed = closure([wanted], lambda one: own.requires or [] if one == name else requires(one))
        for one in sorted(needed - {name}):
            self._place(metadata.distribution(one))
        python = str(self.bin / "python")
        words = ["install", "--quiet", "--no-deps", "--no-index", "--no-compile", str(wheel)]
        pip("--python", python, *words)

    def _place(self, distribution: metadata.Distribution) -> None:
        """Copy the files of a package and its commands, as pip does."""
        files = [file for file in distribution.files or [] if ".." not in file.parts]
        for folder in {file.parent for file in files}:
            (self.packages / folder).mkdir(parents=True, exist_ok=True)
        root = str(distribution.locate_file(""))
        for file in files:
            source, target = f"{root}/{file}", f"{self.packages}/{file}"
            try:
                os.link(source, target)
            except (FileExistsError, FileNotFoundError):  # shared, or a cache that was removed
                continue
            except OSError:  # another file system, or files of another user
                shutil.copy2(source, target)
        for entry in distribution.entry_points.select(group="console_scripts"):
            module, _, attribute = entry.value.partition(":")
            script = self.bin / entry.name
            script.write_text(
                f"#!{self.bin}/python\nimport sys\nfrom {module} import {attribute}\n"
                f"sys.exit({attribute}())\n"
            )
            script.chmod(0o755)

    def environment(self, **more: str) -> dict[str, str]:
        """Return the variables of a fresh shell, in which this environment is active."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(WHOLE_ENVIRONMENT)
        }
        return {
            **kept,
            "PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "XDG_DATA_HOME": str(self.folder / "data"),
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "NO_COLOR": "1",
            "COLUMNS": "100",
            **more,
        }

    def run(self, *words: str, code: int = 0, cwd: Path | None = None, **environment: str) -> str:
        """Run a command of this environment; return its output.

        The output is in a file, because a service that continues may hold a pipe open.
        """
        with (self.folder / "output").open("w+") as output:
            done = subprocess.run(
                [str(self.bin / words[0]), *words[1:]],
                env=self.environment(**environment),
                cwd=cwd or self.work,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=280,
                check=False,
            )
            output.seek(0)
            text = output.read()
        assert done.returncode == code, f"{words} ended with {done.returncode}\n{text}"
        return text

    def start(self, log: Path, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a program of this environment."""
        with log.open("ab") as file:
            return subprocess.Popen(
                [str(self.bin / words[0]), *words[1:]],
                env=self.environment(**environment),
                cwd=self.work,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
