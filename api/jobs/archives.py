"""Safety check of code archives, member by member, before an archive is stored.

It rejects names and links that leave the archive's own tree, repeated names, members other than
files, folders and symbolic links, and archives that unpack to more than the limits.

The archive is never unpacked here. Decompressed bytes are counted while they are read, and the size
of a header is limited. A decompression bomb costs at most the time to read up to the limit and a
megabyte of memory.

Not here: the rules for names and links (``domain.archive_tree``), receiving and storing archives
(``api.routes.uploads``), unpacking, which repeats the check (``worker.launch.code``).
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from pathlib import Path
from typing import IO, Final

from pydantic import BaseModel

from lockstep.domain import limits
from lockstep.domain.archive_tree import ArchiveTree, UnsafeMemberError
from lockstep.domain.errors import ErrorCode, FieldError, LockstepError

HEADER_BYTES_MAX: Final = 1024 * 1024
"""Limit of one header. ``tarfile`` reads a header into memory as a whole; a path needs a few
kilobytes."""
CODE_FILE_SUFFIXES: Final = (".py", ".sh", ".so")
CODE_FILE_CHARS_MAX: Final = 128 * 1024
"""Characters of all noted paths: the api keeps those of many archives in memory."""
OVERHEAD_BYTES_PER_FILE: Final = 4_096
"""Headers and padding of one file in the archive."""
MEDIA_TYPES: Final = frozenset(
    {
        "application/gzip",
        "application/x-gzip",
        "application/x-tar",
        "application/x-gtar",
        "application/octet-stream",
    }
)
_DAMAGE: Final = (
    tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, ArithmeticError, RecursionError
)  # fmt: skip
"""Exceptions of Python's readers for invalid bytes. RecursionError: a chain of extended headers."""
_NEXT: Final = "send the folder with: lockstep submit --code DIR"


class StoredArchive(BaseModel, frozen=True):
    """Metadata of an accepted archive, stored with it."""

    sha256: str
    bytes: int
    """Compressed size."""
    files: int
    unpacked_bytes: int
    top_level: list[str]
    """Names at the top level, sorted."""
    code_files: list[str] | None = None
    """Paths of Python files, shell files, extension modules and links, sorted. None where they are
    too many, and for archives that were stored before they were noted."""


def examine(path: Path, sha256: str) -> StoredArchive:
    """Read and check the whole archive at ``path``.

    Raises
    ------
    LockstepError
        ``invalid`` with the name of the rejected member; ``too_large`` beyond a limit.
    """
    try:
        with gzip.open(path) as plain, tarfile.TarFile(fileobj=_reader(plain)) as tar:
            tree = _Tree()
            for member in tar:
                tree.add(member)
            # Up to the end of the bytes, for the checksum of gzip; tarfile stops at the end of the
            # archive.
            while tar.fileobj is not None and tar.fileobj.read(HEADER_BYTES_MAX):
                pass
        tree.check_links()
    except UnsafeMemberError as error:
        raise _refused(str(error), error.name) from None
    except _DAMAGE as error:
        raise _refused(
            f"the body is not a gzip-compressed tar archive, or is damaged ({error})", None
        ) from None
    return StoredArchive(
        sha256=sha256,
        bytes=path.stat().st_size,
        files=tree.files,
        unpacked_bytes=tree.unpacked_bytes,
        top_level=sorted({parts[0] for parts in tree.paths}),
        code_files=tree.code_files(),
    )


class _Tree:
    """Members of an archive, collected while they are read."""

    def __init__(self) -> None:
        self.files = 0
        self.unpacked_bytes = 0
        self._tree = ArchiveTree()
        self._count = 0

    @property
    def paths(self) -> set[tuple[str, ...]]:
        return self._tree.paths

    def add(self, member: tarfile.TarInfo) -> None:
        self._count += 1
        if self._count > limits.UPLOAD_FILES_MAX:
            raise _too_large(f"the archive has more than {limits.UPLOAD_FILES_MAX} members")
        self._tree.add(member)
        if member.isreg():
            self.files += 1
            self.unpacked_bytes += member.size
            if self.unpacked_bytes > limits.UPLOAD_UNPACKED_BYTES_MAX:
                raise _too_large(
                    f"the archive unpacks to more than {_mib(limits.UPLOAD_UNPACKED_BYTES_MAX)}"
                )

    def code_files(self) -> list[str] | None:
        """Return the paths that a job may start with; None if there are too many."""
        links = self._tree.links
        found = sorted(
            "/".join(parts)
            for parts in self.paths
            if parts in links or parts[-1].endswith(CODE_FILE_SUFFIXES)
        )
        return found if sum(map(len, found)) <= CODE_FILE_CHARS_MAX else None

    def check_links(self) -> None:
        """Check link targets, once all members are known."""
        if not self.files:
            raise _refused("the archive contains no file", None)
        self._tree.check()


def _reader(plain: gzip.GzipFile) -> IO[bytes]:
    return _Counted(plain)  # type: ignore[return-value]  # tarfile uses only these three methods


class _Counted:
    """Decompressed archive as ``tarfile`` reads it, with limits on each read and in total."""

    def __init__(self, plain: gzip.GzipFile) -> None:
        self._plain = plain
        self._most = (
            limits.UPLOAD_UNPACKED_BYTES_MAX + OVERHEAD_BYTES_PER_FILE * limits.UPLOAD_FILES_MAX
        )

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= HEADER_BYTES_MAX:
            raise _too_large(f"a header of the archive is larger than {_mib(HEADER_BYTES_MAX)}")
        self._check(self._plain.tell() + size)
        return self._plain.read(size)

    def seek(self, position: int) -> int:
        # A member of negative size would make the reader loop endlessly.
        if position < self._plain.tell() - 1:
            raise tarfile.ReadError("a member of negative size")
        self._check(position)
        return self._plain.seek(position)

    def tell(self) -> int:
        return self._plain.tell()

    def _check(self, position: int) -> None:
        if position > self._most:
            raise _too_large(
                f"the archive unpacks to more than {_mib(limits.UPLOAD_UNPACKED_BYTES_MAX)}"
            )


def _mib(size: int) -> str:
    return f"{size // (1024 * 1024)} MiB"


def _refused(message: str, value: str | None) -> LockstepError:
    message = f"{message}; nothing was kept"
    return LockstepError(
        ErrorCode.INVALID, message, next_step=_NEXT, fields=(FieldError("", message, value, _NEXT),)
    )


def _too_large(message: str) -> LockstepError:
    return LockstepError(
        ErrorCode.TOO_LARGE,
        f"{message}; nothing was kept",
        next_step="exclude data and environments with a .lockstepignore, or use another --code DIR",
    )
