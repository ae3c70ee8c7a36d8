"""Archive of a folder of code.

The same files give the same bytes and the same digest on every machine.

Names are sorted; times, owners and the compressor's header are fixed; of a file's mode only the
executable bit is kept. An unchanged folder is therefore sent once.

Excluded are version control, caches, virtual environments, and the patterns of ``.lockstepignore``
(or, if there is none, of ``.gitignore``) at the top of the folder. Each excluded path is listed
with its rule. An empty folder is packed, too.

A link to a file of the folder is packed as the file, a link to a folder of it as a link.

Not here: the patterns (``client.ignoring``), the upload (``client.api``), and the server's checks
of an archive (``api.jobs.archives``).
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final, NamedTuple

from lockstep.client.errors import UsageError
from lockstep.client.ignoring import Ignore
from lockstep.domain import limits
from lockstep.domain.archive_tree import GIT_POINTER_BYTES_MAX, is_git_pointer

ALWAYS_LEFT_OUT: Final = frozenset(
    ".git .hg .svn __pycache__ .venv venv .mypy_cache .ruff_cache .pytest_cache .ipynb_checkpoints .tox .DS_Store".split()
)
BIGGEST_NAMED: Final = 5
COMPRESS_LEVEL: Final = 6


@dataclass(frozen=True)
class CodeArchive:
    """An archive on disk, ready to be sent."""

    path: Path
    sha256: str
    size_bytes: int
    files: int
    left_out: tuple[SkippedPath, ...] = ()
    pointers: tuple[str, ...] = ()
    """Files whose content git keeps elsewhere (LFS, git-annex), so that only a pointer is sent."""


class SkippedPath(NamedTuple):
    """A path of the folder that is not in its archive."""

    path: str
    """Relative to the folder; a folder's ends in ``/``."""
    rule: str
    """Rule that excluded it, such as ``.gitignore line 3 (data/)``."""


def pack(folder: Path, target: Path) -> CodeArchive:
    """Write the archive of ``folder`` to the file ``target``.

    Raises
    ------
    UsageError
        If the folder is missing or empty, holds a link out of itself, or is too large; the message
        names the files that make it so.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise UsageError(f"--code {folder}: {what}; expected the folder with your code")
    found = _find(folder)
    files = found.files
    if not files:
        raise UsageError(
            f"--code {folder}: the folder has no files to send",
            next_step="check its .lockstepignore",
        )
    _check_size(folder, files)
    with (
        target.open("wb") as raw,
        # mtime=0 and an empty name: gzip's header would otherwise hold the time and the path of the
        # temporary file.
        gzip.GzipFile("", "wb", COMPRESS_LEVEL, raw, mtime=0) as packed,
        tarfile.open(mode="w", fileobj=packed, format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in found.folders:
            empty = tarfile.TarInfo(name)
            empty.type, empty.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(empty)
        pointers = tuple(name for name, path in files if _add(tar, name, path))
        for name, target_of in found.links:
            link = tarfile.TarInfo(name)
            link.type, link.linkname, link.mode = tarfile.SYMTYPE, target_of, 0o777
            tar.addfile(link)
    size = target.stat().st_size
    if size > limits.UPLOAD_BYTES_MAX:
        raise _too_large(folder, files, f"{_mib(size)} compressed", _mib(limits.UPLOAD_BYTES_MAX))
    with target.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return CodeArchive(target, digest, size, len(files), tuple(found.left_out), pointers)


class _Found(NamedTuple):
    """Contents of a folder, by their names in the archive."""

    files: list[tuple[str, Path]]
    links: list[tuple[str, str]]
    """Links to folders, with their targets from where they lie."""
    folders: list[str]
    """Empty folders."""
    left_out: list[SkippedPath]


def _find(folder: Path) -> _Found:
    """Return the packed paths of ``folder``, sorted, and the excluded ones with their rules."""
    ignore = Ignore.of(folder)
    top = folder.resolve()
    found = _Found([], [], [], [])
    linked: list[tuple[str, Path]] = []
    for where, folders, names in os.walk(top):
        here = Path(where)
        entered = []
        found.folders.extend(_empty(here, top, [*folders, *names]))
        for name in sorted([*folders, *names]):
            path = here / name
            relative = path.relative_to(top).as_posix()
            is_folder = path.is_dir() and not path.is_symlink()
            rule = _built_in(name, is_folder=is_folder) or ignore.rule(
                relative, is_folder=path.is_dir()
            )
            if rule is None:
                _check(folder, top, path)
            if rule is not None:
                found.left_out.append(SkippedPath(f"{relative}/" if is_folder else relative, rule))
            elif is_folder:
                entered.append(name)
            elif path.is_dir():
                linked.append((relative, path))
            elif path.is_file():  # a link to a file arrives as the file
                found.files.append((relative, path))
            else:
                why = "a broken link" if path.is_symlink() else "neither a file nor a folder"
                found.left_out.append(SkippedPath(relative, why))
        folders[:] = entered
    _add_links(found, linked, top)
    for part in found:
        part.sort()
    return found


def _add_links(found: _Found, linked: list[tuple[str, Path]], top: Path) -> None:
    """Add the links to folders that have a packed file, and exclude the others."""
    packed = {parent for name, _ in found.files for parent in PurePosixPath(name).parents}
    for name, path in linked:
        target = path.resolve()
        if PurePosixPath(target.relative_to(top).as_posix()) in packed:
            # Of the real folder, because no link may lead through another one
            # (domain.archive_tree).
            found.links.append((name, Path(os.path.relpath(target, path.parent)).as_posix()))
        else:
            found.left_out.append(SkippedPath(name, "a link to an excluded file"))


def _built_in(name: str, *, is_folder: bool) -> str | None:
    is_cache = name in ALWAYS_LEFT_OUT or (not is_folder and name.endswith((".pyc", ".pyo")))
    return "built-in rule" if is_cache else None


def _empty(here: Path, top: Path, content: list[str]) -> list[str]:
    """Return the name of a folder in the archive if it is empty."""
    return [] if content or here == top else [here.relative_to(top).as_posix()]


def _check(folder: Path, top: Path, path: Path) -> None:
    """Refuse a name that no other program of Lockstep can store or show, and a link outside."""
    _check_inside(folder, top, path)
    name = path.relative_to(top).as_posix()
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"--code {folder}: the name {os.fsencode(name)!r} is not UTF-8",
            next_step="rename it, or list it in .lockstepignore, such as with * for its bytes",
        ) from None


def _check_inside(folder: Path, top: Path, path: Path) -> None:
    """Refuse a link that leaves the folder.

    On the node it would point at nothing, or at something else.
    """
    if not path.is_symlink():
        return
    try:
        target = path.resolve(strict=path.exists())
        path.stat()
    except (RuntimeError, OSError) as error:
        # Before Python 3.13 resolve() raises RuntimeError for a loop of links.
        if isinstance(error, RuntimeError) or error.errno == errno.ELOOP:
            raise UsageError(
                f"--code {folder}: {path.relative_to(top).as_posix()} is a link in a loop of links "
                f"({path.readlink()})",
                next_step="remove it, or list it in .lockstepignore",
            ) from None
        target = path.resolve()
    if not target.is_relative_to(top):
        raise UsageError(
            f"--code {folder}: {path.relative_to(top).as_posix()} is a link to {target}, "
            f"outside the folder",
            next_step="copy its target into the folder, or list the link in .lockstepignore",
        )


def _check_size(folder: Path, files: list[tuple[str, Path]]) -> None:
    if len(files) > limits.UPLOAD_FILES_MAX:
        raise UsageError(
            f"--code {folder}: {len(files):,} files; at most {limits.UPLOAD_FILES_MAX:,} are "
            f"allowed",
            next_step="list files that the job does not need in .lockstepignore",
        )
    total = sum(path.stat().st_size for _, path in files)
    if total > limits.UPLOAD_UNPACKED_BYTES_MAX:
        raise _too_large(folder, files, _mib(total), _mib(limits.UPLOAD_UNPACKED_BYTES_MAX))


def _too_large(folder: Path, files: list[tuple[str, Path]], size: str, limit: str) -> UsageError:
    biggest = sorted(((path.stat().st_size, name) for name, path in files), reverse=True)[
        :BIGGEST_NAMED
    ]
    named = ", ".join(f"{name} ({_mib(size)})" for size, name in biggest)
    return UsageError(
        f"--code {folder}: {size}; at most {limit} is allowed; the biggest files: {named}",
        next_step=(
            "list files that the job does not need in .lockstepignore; keep data on the nodes"
        ),
    )


def _add(tar: tarfile.TarFile, name: str, path: Path) -> bool:
    """Add a file; return whether it is a pointer to content that git keeps elsewhere."""
    entry = tarfile.TarInfo(name)
    status = path.stat()
    entry.size = status.st_size
    entry.mode = 0o755 if status.st_mode & 0o100 else 0o644
    with path.open("rb") as file:
        is_pointer = is_git_pointer(file.read(GIT_POINTER_BYTES_MAX + 1))
        file.seek(0)
        tar.addfile(entry, _Exactly(file, name, status.st_size))
    return is_pointer


class _Exactly:
    """A file that must still have the size it was listed with.

    One that grows meanwhile would tear the archive.
    """

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
