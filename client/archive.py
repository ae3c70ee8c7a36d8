"""A folder of code as one archive: the same files give the same bytes, and so the same digest, on every machine.

Names are sorted, times, owners and the compressor's own header are fixed, and of a file's mode only the executable bit
is kept. So a folder that has not changed is not sent twice.

What is left out: version control, caches and virtual environments, and what ``.lockstepignore`` (or, where there is
none, ``.gitignore``) at the folder's top names. Of git's patterns the common ones are understood: ``name``, ``*.ext``,
``folder/``, ``/only/here``, ``a/*/b``, ``**`` and ``!kept``; as in git, the last matching line decides.

Not here: sending it (``client.api``), and what the server refuses in an archive (``api``).
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from client.errors import UsageError
from domain import limits

ALWAYS_LEFT_OUT: Final = frozenset(
    ".git .hg .svn __pycache__ .venv venv .mypy_cache .ruff_cache .pytest_cache .ipynb_checkpoints .tox .DS_Store".split()
)
IGNORE_FILES: Final = (".lockstepignore", ".gitignore")
BIGGEST_NAMED: Final = 5
COMPRESS_LEVEL: Final = 6


@dataclass(frozen=True)
class Archive:
    """An archive on disk, ready to be sent."""

    path: Path
    sha256: str
    size_bytes: int
    files: int


class Ignore:
    """The patterns of one ignore file."""

    def __init__(self, text: str):
        self._rules: list[tuple[re.Pattern[str], bool, bool]] = []
        for raw in text.splitlines():
            line = raw.rstrip()
            if not line or line.startswith("#"):
                continue
            kept = line.startswith("!")
            pattern = line[1:] if kept else line
            folders_only = pattern.endswith("/")
            self._rules.append((_pattern(pattern.rstrip("/")), kept, folders_only))

    def __call__(self, path: str, *, is_folder: bool) -> bool:
        """Whether ``path``, relative to the top and with ``/``, is left out."""
        left_out = False
        for pattern, kept, folders_only in self._rules:
            if (is_folder or not folders_only) and pattern.fullmatch(path):
                left_out = not kept
        return left_out


def _pattern(line: str) -> re.Pattern[str]:
    """A git pattern as a regular expression over the whole relative path."""
    anchored = "/" in line
    parts = line.lstrip("/").split("/")
    regex = "" if anchored else "(?:.*/)?"
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == "**":
            regex += ".*" if last else "(?:.*/)?"
            continue
        regex += "".join("[^/]*" if char == "*" else "[^/]" if char == "?" else re.escape(char) for char in part)
        regex += "" if last else "/"
    return re.compile(regex)


def pack(folder: Path, target: Path) -> Archive:
    """Write the archive of ``folder`` to the file ``target``.

    Raises
    ------
    UsageError
        If the folder is missing or empty, holds a link out of itself, or is too large; the message names the files
        that make it so.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise UsageError(f"--code {folder}: {what}; the folder with your code was expected")
    files = sorted(_files(folder), key=lambda item: item[0])
    if not files:
        raise UsageError(f"--code {folder}: there is no file in it", next_step="look at its .lockstepignore")
    _check_size(folder, files)
    with (
        target.open("wb") as raw,
        # mtime=0 and an empty name: gzip's header would otherwise hold the time and the path of the temporary file.
        gzip.GzipFile("", "wb", COMPRESS_LEVEL, raw, mtime=0) as packed,
        tarfile.open(mode="w", fileobj=packed, format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, path in files:
            _add(tar, name, path)
    size = target.stat().st_size
    if size > limits.UPLOAD_BYTES_MAX:
        raise _too_large(folder, files, f"{_mib(size)} compressed", _mib(limits.UPLOAD_BYTES_MAX))
    with target.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Archive(target, digest, size, len(files))


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """(name in the archive, path) of every file that is not left out."""
    ignore = _ignore_of(folder)
    top = folder.resolve()
    for where, folders, names in os.walk(top):
        here = Path(where)
        inside = here.relative_to(top)
        folders[:] = sorted(
            name
            for name in folders
            if name not in ALWAYS_LEFT_OUT
            and not ignore((inside / name).as_posix(), is_folder=True)
            and not _is_link_out(folder, top, here / name)
        )
        # A linked folder inside the folder arrives as the files it shows: os.walk does not enter it.
        for name in [*names, *[name for name in folders if (here / name).is_symlink()]]:
            path = here / name
            relative = (inside / name).as_posix()
            if name in ALWAYS_LEFT_OUT or name.endswith((".pyc", ".pyo")) or ignore(relative, is_folder=False):
                continue
            _is_link_out(folder, top, path)
            if path.is_dir():
                raise UsageError(
                    f"--code {folder}: {relative} is a link to a folder, which an archive does not carry",
                    next_step="copy the folder, or name the link in .lockstepignore",
                )
            if path.is_file():
                yield relative, path


def _is_link_out(folder: Path, top: Path, path: Path) -> bool:
    """Refuse a link that leaves the folder: on the node it would point at nothing, or at something else."""
    if path.is_symlink() and not path.resolve().is_relative_to(top):
        raise UsageError(
            f"--code {folder}: {path.relative_to(top).as_posix()} is a link to {path.resolve()}, outside the folder",
            next_step="copy what it points to, or name the link in .lockstepignore",
        )
    return False


def _ignore_of(folder: Path) -> Ignore:
    for name in IGNORE_FILES:
        file = folder / name
        if file.is_file():
            return Ignore(file.read_text(encoding="utf-8", errors="replace"))
    return Ignore("")


def _check_size(folder: Path, files: list[tuple[str, Path]]) -> None:
    if len(files) > limits.UPLOAD_FILES_MAX:
        raise UsageError(
            f"--code {folder}: {len(files):,} files, at most {limits.UPLOAD_FILES_MAX:,} are taken",
            next_step="name what the job does not need in .lockstepignore",
        )
    total = sum(path.stat().st_size for _, path in files)
    if total > limits.UPLOAD_UNPACKED_BYTES_MAX:
        raise _too_large(folder, files, _mib(total), _mib(limits.UPLOAD_UNPACKED_BYTES_MAX))


def _too_large(folder: Path, files: list[tuple[str, Path]], size: str, limit: str) -> UsageError:
    biggest = sorted(((path.stat().st_size, name) for name, path in files), reverse=True)[:BIGGEST_NAMED]
    named = ", ".join(f"{name} ({_mib(size)})" for size, name in biggest)
    return UsageError(
        f"--code {folder}: {size}, at most {limit} is taken; the biggest files: {named}",
        next_step="name what the job does not need in .lockstepignore; data belongs on the nodes",
    )


def _add(tar: tarfile.TarFile, name: str, path: Path) -> None:
    entry = tarfile.TarInfo(name)
    status = path.stat()
    entry.size = status.st_size
    entry.mode = 0o755 if status.st_mode & 0o100 else 0o644
    with path.open("rb") as file:
        tar.addfile(entry, _Exactly(file, name, status.st_size))


class _Exactly:
    """A file that must still have the size it was listed with: one that grows meanwhile would tear the archive."""

    def __init__(self, file: IO[bytes], name: str, size: int):
        self._file, self._name, self._left = file, name, size

    def read(self, size: int = -1, /) -> bytes:
        block = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(block)
        if self._left and not block:
            raise UsageError(f"{self._name} changed while it was read", next_step="submit again")
        return block


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
