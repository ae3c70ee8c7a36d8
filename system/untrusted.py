"""Files below a folder that another program writes: any type, size, depth and number.

Every name is resolved below the folder without links (``system.beneath``). An open never waits for
the other end of a pipe or for a terminal, and only regular files are read and written. Each read
and each list has a bound.

Not here: the replacement of a file (``system.replacements``), atomic writes to folders of the
service (``system.files``), removal of whole trees (``system.trees``).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import BinaryIO, Final, Protocol, Self, TypeVar

from lockstep.system import beneath, replacements, trees
from lockstep.system.beneath import UnsafeFileError
from lockstep.system.entries import FolderEntry, entry_of
from lockstep.system.replacements import QUIET

MODEL_BYTES_MAX: Final = 1024 * 1024
"""One document of JSON."""
FOLDERS_DEEP_MAX: Final = 32
"""Of a walk. Each level is resolved again from the top."""
_PIECE_BYTES: Final = 1024 * 1024
_FICLONE: Final = 0x40049409


class _Document(Protocol):
    """A model of pydantic, without its import."""

    @classmethod
    def model_validate_json(cls, text: bytes, /) -> Self: ...


Document = TypeVar("Document", bound=_Document)


class Untrusted:
    """The folder at ``path``. It holds nothing open, and the folder need not exist yet."""

    def __init__(self, path: Path):
        self.path = path

    def descriptor(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Open a regular file; the caller closes it.

        Raises
        ------
        FileNotFoundError, NotADirectoryError
            If it does not exist.
        UnsafeFileError
        OSError
            If the disk fails.
        """
        descriptor = self._open(name, flags | QUIET)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise UnsafeFileError(name, "not_regular")
        return descriptor

    def open(self, name: str) -> FileIO:
        """Open a regular file to read. Raises as :meth:`descriptor`."""
        return FileIO(self.descriptor(name), "rb")

    def read(self, name: str, *, most: int, start: int = 0) -> bytes | None:
        """Return the bytes of a file from ``start`` on; None if it does not exist.

        Raises
        ------
        UnsafeFileError
            Also if there are more than ``most`` bytes.
        """
        try:
            file = self.open(name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with file:
            file.seek(start)
            found = _filled(file, most + 1)
        if len(found) > most:
            raise UnsafeFileError(name, "too_large")
        return found

    def model(
        self, name: str, kind: type[Document], *, most: int = MODEL_BYTES_MAX
    ) -> Document | None:
        """Return a file as a model; None if it does not exist.

        The parser bounds the nesting.

        Raises
        ------
        ValueError
            If its contents are damaged.
        UnsafeFileError
        """
        text = self.read(name, most=most)
        return None if text is None else kind.model_validate_json(text)

    def tail(self, name: str, *, most: int) -> bytes:
        """Return the last bytes of a file; none if it does not exist.

        Raises
        ------
        UnsafeFileError
        """
        try:
            file = self.open(name)
        except (FileNotFoundError, NotADirectoryError):
            return b""
        with file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - most))
            return _filled(file, most)

    def status(self, name: str) -> os.stat_result | None:
        """Return the kernel's data of a name, not of the target of a link; None without it."""
        try:
            descriptor = self._open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def exists(self, name: str) -> bool:
        """Return whether something has the name, whatever it is."""
        return self.status(name) is not None

    def is_file(self, name: str) -> bool:
        """Return whether a regular file has the name."""
        found = self.status(name)
        return found is not None and stat.S_ISREG(found.st_mode)

    def size(self, name: str) -> int:
        """Return the bytes of a regular file; 0 if it is none."""
        found = self.status(name)
        return found.st_size if found is not None and stat.S_ISREG(found.st_mode) else 0

    def names(self, folder: str = "", *, most: int) -> list[FolderEntry]:
        """Return the entries of a folder, in no order; none if it does not exist.

        Raises
        ------
        UnsafeFileError
            Also if there are more than ``most``.
        """
        found: list[FolderEntry] = []
        for entry in self._entries(folder):
            if len(found) == most:
                raise UnsafeFileError(folder or self.path.name, "too_many")
            found.append(entry)
        return found

    def walk(self, folder: str, *, most: int) -> Iterator[FolderEntry]:
        """Yield what is below a folder, at most ``most`` entries, by names below ``folder``.

        Folders that cannot be read, or lie too deep, are left out.
        """
        left, waiting = most, [("", 0)]
        while waiting:
            above, depth = waiting.pop()
            with contextlib.suppress(OSError):
                for entry in self._entries(f"{folder}/{above}".rstrip("/")):
                    if left == 0:
                        return
                    left -= 1
                    found = entry._replace(name=f"{above}/{entry.name}" if above else entry.name)
                    if entry.kind == "folder" and depth < FOLDERS_DEEP_MAX:
                        waiting.append((found.name, depth + 1))
                    yield found

    def make_folder(self, name: str) -> None:
        """Make a folder for this user alone, unless there is one."""
        with self._folder_of(name) as (folder, last), contextlib.suppress(FileExistsError):
            os.mkdir(last, 0o700, dir_fd=folder)
        os.close(self._open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def append(self, name: str, content: bytes, *, most: int) -> None:
        """Append to a file, which is made if it is missing.

        Raises
        ------
        UnsafeFileError
            Also if it would have more than ``most`` bytes.
        """
        descriptor = self.descriptor(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            if os.fstat(descriptor).st_size + len(content) > most:
                raise UnsafeFileError(name, "too_large")
            replacements.write_all(descriptor, content)
        finally:
            os.close(descriptor)

    def write(self, name: str, content: bytes) -> None:
        """Replace whatever has the name by a file, so that a reader sees all of it or nothing.

        On a full disk it takes the space that :meth:`reserve` has kept. Calls for one name must not
        overlap then.
        """
        with self._folder_of(name) as (folder, last):
            replacements.write(folder, last, content)

    def reserve(self, name: str, most: int) -> None:
        """Keep space for contents of at most so many bytes, in a spare file beside it.

        One :meth:`write` needs no other space. Later ones need none either where the file existed
        before the disk was full, and its file system can exchange two names.

        Raises
        ------
        OSError
            If the disk is full already.
        """
        with self._folder_of(name) as (folder, last):
            replacements.reserve(folder, last, most)

    def copy(
        self, name: str, target: Path, *, most: int, cut: bool = False, sync: bool = True
    ) -> tuple[int, str]:
        """Clone or copy a file to a new file; return the bytes and the SHA-256 of the new one.

        The new file is read by its owner only and does not change with the old one. It is synced to
        the disk if ``sync``.

        Raises
        ------
        UnsafeFileError
            Also if there are more than ``most`` bytes, unless the rest is to be ``cut``.
        FileNotFoundError
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with self.open(name) as source, FileIO(os.open(target, flags, 0o400), "r+b") as copy:
            if os.fstat(source.fileno()).st_size <= most and _clone(source, copy):
                found = _digest(copy, most=most)
            else:
                found = copied(source, copy, name, most=most, cut=cut)
            if sync:
                os.fsync(copy.fileno())
        return found

    def digest(self, name: str, *, most: int) -> str:
        """SHA-256 of the first bytes of a file. Raises as :meth:`descriptor`."""
        with self.open(name) as file:
            return _digest(file, most=most)[1]

    def signal(self, name: str, content: bytes) -> bool:
        """Write to a pipe if it has a reader and space; return whether it was written."""
        descriptor = self._open(name, os.O_WRONLY | QUIET)
        try:
            is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
            return is_pipe and os.write(descriptor, content) > 0
        finally:
            os.close(descriptor)

    def remove(self, name: str, *, seconds: float) -> bool:
        """Remove a file or a whole folder. Return False if more is left after this time.

        Raises
        ------
        OSError
            If nothing of the rest can be removed.
        """
        try:
            with self._folder_of(name) as (folder, last):
                return trees.remove(folder, last, seconds)
        except (FileNotFoundError, NotADirectoryError):
            return True

    def _entries(self, folder: str) -> Iterator[FolderEntry]:
        try:
            descriptor = self._open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        yield entry_of(entry.name, entry.stat(follow_symlinks=False))
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _folder_of(self, name: str) -> Iterator[tuple[int, str]]:
        """A descriptor of the folder that has the name, and the last part of the name."""
        above, _, last = beneath.checked(name).rpartition("/")
        descriptor = self._open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield descriptor, last
        finally:
            os.close(descriptor)

    def _open(self, name: str, flags: int) -> int:
        # The folder itself may be replaced by a link, too.
        top = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return beneath.opened(top, name, flags)
        finally:
            os.close(top)


def copied(
    source: FileIO, sink: BinaryIO, name: str, *, most: int, cut: bool = False
) -> tuple[int, str]:
    """Copy a file to its end; return the bytes and the SHA-256 of the copy.

    Raises
    ------
    UnsafeFileError
        If there are more than ``most`` bytes, unless the rest is to be ``cut``.
    """
    digest, size = hashlib.sha256(), 0
    while piece := source.read(_PIECE_BYTES):
        if size + len(piece) > most:
            if not cut:
                raise UnsafeFileError(name, "too_large")
            piece = piece[: most - size]
        size += len(piece)
        digest.update(piece)
        rest = memoryview(piece)
        while rest:
            rest = rest[sink.write(rest) :]
        if size == most and cut:
            break
    return size, digest.hexdigest()


def _filled(file: FileIO, most: int) -> bytes:
    """Read until the end or until there are ``most`` bytes."""
    found = b""
    while len(found) < most and (piece := file.read(min(_PIECE_BYTES, most - len(found)))):
        found += piece
    return found


def _digest(file: FileIO, *, most: int) -> tuple[int, str]:
    """Return the length and the SHA-256 of a file, or of its first bytes."""
    digest, size = hashlib.sha256(), 0
    while piece := file.read(min(_PIECE_BYTES, most - size)):
        size += len(piece)
        digest.update(piece)
    return size, digest.hexdigest()


def _clone(source: FileIO, target: FileIO) -> bool:
    """Let two files share their blocks until one is written. False where that is not possible."""
    try:
        fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
    except OSError:
        return False
    return True
