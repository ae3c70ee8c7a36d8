"""List of the files that a job has in its folders, without reading them.

Kept are regular files below the working folder and ``$LOCKSTEP_OUTPUT``. Where the code is used in
place, the working folder is not the attempt's, and only the other is kept.

Not here: what of them is new (``worker.upload.kept.rounds``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from lockstep.domain import limits
from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import FileStamp
from lockstep.domain.spec.job import JobSpec, PathCode
from lockstep.system.beneath import UnsafeFileError
from lockstep.system.entries import FolderEntry
from lockstep.system.untrusted import FOLDERS_DEEP_MAX, Untrusted

ENTRIES_MAX: Final = 200_000
"""Names in all folders: the code may have a quarter of them."""
NEVER: Final = frozenset({"__pycache__", ".git", ".cache"})
_INSIDE: Final = f"{attempt.CODE}/{attempt.OUTPUT}"
_WHY: Final = {"link": "a symbolic link", "other": "not a regular file"}


class SeenFile(NamedTuple):
    """A regular file, or the name of something else."""

    source: str
    """Below the attempt's folder."""
    stamp: FileStamp
    executable: bool
    refused: str = ""
    """Reason why it cannot be kept, as a noun."""

    @property
    def bytes(self) -> int:
        return self.stamp[0]

    @property
    def changed_ns(self) -> int:
        return self.stamp[2]


class Scan(NamedTuple):
    """Everything below the folders that are kept."""

    names: dict[str, SeenFile]
    """By path."""
    unread: dict[str, str]
    """Folders that were not read, with the reason. What is stored of them stays."""
    is_whole: bool
    """False if there is more than was read, beside these folders."""


def make_output(files: Untrusted, spec: JobSpec) -> None:
    """Make the folder ``$LOCKSTEP_OUTPUT``, unless the code has it."""
    if not isinstance(spec.code, PathCode):
        try:
            files.make_folder(_INSIDE)
        except (UnsafeFileError, NotADirectoryError):
            pass  # The code has a file of that name.
        else:
            return
    files.make_folder(attempt.OUTPUT)


def source_of(files: Untrusted, spec: JobSpec, path: str) -> str:
    """Return where a kept file belongs, below the attempt's folder."""
    is_output = path.startswith(f"{attempt.OUTPUT}/")
    if isinstance(spec.code, PathCode):
        # Files of a job that this one continues may lie elsewhere. Beside the code are the files
        # of the attempt itself.
        return path if is_output else f"{attempt.OUTPUT}/{path}"
    is_beside = is_output and files.exists(attempt.OUTPUT)
    return path if is_beside else f"{attempt.CODE}/{path}"


def scan(files: Untrusted, spec: JobSpec) -> Scan:
    """List the names in the folders that are kept."""
    names: dict[str, SeenFile] = {}
    unread: dict[str, str] = {}
    left = ENTRIES_MAX
    waiting = [(attempt.OUTPUT, attempt.OUTPUT, 0)]
    if not isinstance(spec.code, PathCode):
        waiting.append((attempt.CODE, "", 0))
    while waiting:
        source, path, depth = waiting.pop()
        try:
            entries = files.names(source, most=left)
        except OSError as error:
            if isinstance(error, UnsafeFileError) and error.why == "too_many":
                unread[path or "."] = f"beyond {ENTRIES_MAX:,} names"
                return Scan(names, unread, is_whole=False)
            unread[path or "."] = "not readable"
            continue
        left -= len(entries)
        for entry in entries:
            inner = f"{path}/{entry.name}" if path else entry.name
            place = f"{source}/{entry.name}"
            if entry.kind != "folder":
                names[inner] = _seen(place, inner, entry)
            elif entry.name in NEVER:
                continue
            elif depth == FOLDERS_DEEP_MAX:
                unread[inner] = "too deep"
            else:
                waiting.append((place, inner, depth + 1))
    return Scan(names, unread, is_whole="." not in unread)


def _seen(source: str, path: str, entry: FolderEntry) -> SeenFile:
    stamp = (entry.bytes, entry.modified_ns, entry.changed_ns, entry.inode)
    return SeenFile(source, stamp, entry.executable, _WHY.get(entry.kind) or _why_not(path))


def _why_not(path: str) -> str:
    if not path.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in path):
        return "a name that is not UTF-8"
    if len(path) > limits.KEPT_PATH_CHARS_MAX:
        return f"a name of more than {limits.KEPT_PATH_CHARS_MAX} characters"
    return ""


def stamps(names: Mapping[str, SeenFile]) -> dict[str, FileStamp]:
    """Return the stamps of all names."""
    return {path: seen.stamp for path, seen in names.items()}


def readable(path: str) -> str:
    """Return a name for a message, with escapes for bytes and letters that cannot be printed."""
    return "".join(
        f"\\x{ord(letter) - 0xDC00:02x}"
        if "\udc80" <= letter <= "\udcff"
        else letter
        if letter.isprintable()
        else letter.encode("unicode_escape").decode()
        for letter in path
    )
