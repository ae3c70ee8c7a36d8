"""An attempt's folder on this node, in the format of ``domain.life.attempt``.

Every file is written to a temporary name beside it and renamed. Nothing is synced to the disk: the
files protect against the death of a process, and after a power cut no process of the attempt reads
them.

Ranks write to the folder, too, so everything in it is read, written and removed through
``system.untrusted``.

Not here: spools and logs in it (``worker.upload.files.lines``), and the time of its deletion
(``worker.agent.assignment``).
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import structlog
from pydantic import BaseModel, ValidationError

from lockstep.domain import limits
from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import (
    AssignmentFile,
    EventFilesFile,
    FenceFile,
    FollowedFile,
    KeptMemory,
    LauncherFile,
    LogRecord,
    MemoryFile,
    ReportedFile,
    ResultFile,
    StopFile,
    UploadedFile,
)
from lockstep.domain.life.grace import SaveTime
from lockstep.system.beneath import UnsafeFileError
from lockstep.system.files import BROKEN, try_to_write
from lockstep.system.untrusted import MODEL_BYTES_MAX, Untrusted

log = structlog.get_logger(__name__)

File = TypeVar("File", bound=BaseModel)

_TRASH = ".trash-"
_KEPT = ".kept-"
_TAIL_BYTES = 256 * 1024
"""Of a log segment: enough for the last lines, unless they are very long."""
_RESERVES: Final = {
    attempt.FENCE: 1024,
    attempt.UPLOADED: 1024,
    attempt.STOP: 1024,
    attempt.GANG_FAILED: 0,
    attempt.STOP_NOTICE: 1024,
    attempt.RESULT: 64 * 1024,
}
"""Bytes kept for each file. A longer result is rare: its texts have at most 15,000 characters."""
KEPT_MEMORY_BYTES_MAX: Final = 64 * 1024 * 1024
"""About 60,000 names of 400 characters and more."""
_REMOVAL_SECONDS: Final = 1.0
"""Slice of a removal."""


class DamagedFileError(Exception):
    """A file of the contract exists with invalid contents."""


class Folder:
    """One attempt's folder."""

    def __init__(self, path: Path):
        self.path = path
        self.files = Untrusted(path)
        """Everything in it."""

    @property
    def assignment_id(self) -> str:
        return self.path.name

    def exists(self) -> bool:
        return self.path.is_dir()

    def is_on_a_broken_disk(self) -> bool:
        """Return whether the node's disk fails, or has become read-only after an error."""
        try:
            try_to_write(str(self.path.parent))
        except OSError as error:
            return error.errno in BROKEN
        return False

    def create(self) -> None:
        """Make it, readable by this user alone.

        It may exist already: preparing is repeated after a failure.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("spool", attempt.LOGS, attempt.CHECKPOINTS, attempt.TENSORBOARD):
            self.files.make_folder(name)

    def reserve(self) -> None:
        """Keep space for the files without which a full disk would change the attempt's end.

        Call it before the launcher starts.

        Raises
        ------
        OSError
            If the disk is full already.
        """
        for name, most in _RESERVES.items():
            self.files.reserve(name, most)
        self.write_uploaded(0, 0)

    def file(self, name: str) -> Path:
        return self.path / name

    def write_assignment(self, file: AssignmentFile) -> None:
        self._write(attempt.ASSIGNMENT, file)

    def write_fence(self, deadline_boottime: float) -> None:
        """Write the deadline, also on a full disk: without it the ranks would be killed."""
        self._write(attempt.FENCE, FenceFile(deadline_boottime=deadline_boottime))

    def write_stop(self, file: StopFile) -> None:
        self._write(attempt.STOP, file)

    def write_gang_failed(self) -> None:
        self.files.write(attempt.GANG_FAILED, b"")

    def write_uploaded(self, segment: int, offset: int) -> None:
        self._write(attempt.UPLOADED, UploadedFile(segment=segment, offset=offset))

    def write_followed(self, file: FollowedFile) -> None:
        self._write(attempt.FOLLOWED, file)

    def followed(self) -> FollowedFile | None:
        return self._readable(attempt.FOLLOWED, FollowedFile)

    def write_event_files(self, file: EventFilesFile) -> None:
        self._write(attempt.EVENT_FILES, file)

    def event_files(self) -> EventFilesFile | None:
        return self._readable(attempt.EVENT_FILES, EventFilesFile)

    def is_first_report(self, key: str) -> bool:
        """Return whether an event was not reported before, and note it."""
        found = self._readable(attempt.REPORTED, ReportedFile)
        keys = [] if found is None else found.keys
        if key in keys:
            return False
        # On a full disk it is reported; a later agent may repeat it.
        with contextlib.suppress(OSError):
            self._write(attempt.REPORTED, ReportedFile(keys=[*keys, key]))
        return True

    def write_kept_memory(self, file: KeptMemory) -> None:
        self._write(attempt.KEPT, file)

    def kept_memory(self) -> KeptMemory | None:
        return self._readable(attempt.KEPT, KeptMemory, most=KEPT_MEMORY_BYTES_MAX)

    def write_memory_before(self, used_bytes: Mapping[int, int]) -> None:
        self._write(attempt.MEMORY_BEFORE, MemoryFile(used_bytes=dict(used_bytes)))

    def memory_before(self) -> Mapping[int, int]:
        """Bytes used on each GPU before the launch; nothing where that was not noted."""
        found = self._readable(attempt.MEMORY_BEFORE, MemoryFile)
        return {} if found is None else found.used_bytes

    def assignment(self) -> AssignmentFile | None:
        return self._readable(attempt.ASSIGNMENT, AssignmentFile)

    def fence(self) -> float:
        """The boottime until which its ranks may live; 0 without one."""
        found = self._readable(attempt.FENCE, FenceFile)
        return 0.0 if found is None else found.deadline_boottime

    def stop(self) -> StopFile | None:
        return self._readable(attempt.STOP, StopFile)

    def launcher(self) -> LauncherFile | None:
        return self._readable(attempt.LAUNCHER, LauncherFile)

    def save_time(self) -> SaveTime | None:
        """Return the duration of a save; None while no step can be lost."""
        return self._readable(attempt.SAVE_TIME, SaveTime)

    def result(self) -> ResultFile | None:
        """Return the launcher's result; None while there is none.

        Raises
        ------
        DamagedFileError
            If the file exists and is invalid.
        """
        return self._read(attempt.RESULT, ResultFile, most=limits.RESULT_BYTES_MAX)

    def was_launched(self) -> bool:
        """Return whether a launcher ever ran.

        It writes its own file first, or the reason of an earlier failure.
        """
        return self.files.exists(attempt.LAUNCHER) or self.files.size(attempt.LAUNCHER_LOG) > 0

    def launcher_log_tail(self) -> str:
        """Return the end of the launcher's own output."""
        try:
            found = self.files.tail(attempt.LAUNCHER_LOG, most=limits.TRACEBACK_CHARS_MAX)
        except UnsafeFileError:
            return ""
        return found.decode(errors="replace")

    def log_segments(self) -> list[int]:
        """Return the numbers of the log's segments; none if user code has filled the folder."""
        try:
            entries = self.files.names(attempt.LOGS, most=limits.LOG_SEGMENTS_MAX)
        except UnsafeFileError:
            return []
        return sorted(
            number
            for entry in entries
            if (stem := entry.name.removesuffix(".jsonl")).isdecimal()
            and attempt.segment_name(number := int(stem)) == entry.name
        )

    def last_log_lines(self) -> str:
        """The last lines of all ranks as far as they are still here, each with its rank.

        For an attempt whose launcher died.
        """
        lines: list[str] = []
        for number in reversed(self.log_segments()):
            wanted = limits.EXCERPT_LINES_MAX - len(lines)
            if wanted <= 0:
                break
            try:
                name = f"{attempt.LOGS}/{attempt.segment_name(number)}"
                records = self.files.tail(name, most=_TAIL_BYTES).split(b"\n")
            except OSError:
                continue  # something that user code put there
            lines = [line for record in records[-wanted - 1 :] if (line := _marked(record))] + lines
        return "\n".join(lines[-limits.EXCERPT_LINES_MAX :])[-limits.EXCERPT_CHARS_MAX :]

    def delete(self) -> None:
        """Remove it whole, as seen by others. May take long if user code has filled it.

        It is renamed first, and ``folders_in`` does not list the remains.

        A symbolic link inside it (``code`` of a ``path`` job) is removed, never followed.
        """
        if not self.exists():
            return
        trash = self.path.with_name(f"{_TRASH}{self.path.name}-{secrets.token_hex(4)}")
        self.path.rename(trash)
        _remove(trash)

    def _write(self, name: str, file: BaseModel) -> None:
        self.files.write(name, file.model_dump_json().encode())

    def _readable(self, name: str, kind: type[File], *, most: int = MODEL_BYTES_MAX) -> File | None:
        """The file, or None where it is missing or damaged.

        User code can write here, and nothing may hang on it.
        """
        try:
            return self._read(name, kind, most=most)
        except DamagedFileError as error:
            log.warning("a file is treated as missing", error=str(error))
            return None

    def _read(self, name: str, kind: type[File], *, most: int = MODEL_BYTES_MAX) -> File | None:
        try:
            return self.files.model(name, kind, most=most)
        except OSError as error:
            if not isinstance(error, UnsafeFileError) and error.errno not in BROKEN:
                raise
            raise DamagedFileError(f"{self.file(name)} cannot be read: {error}") from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise DamagedFileError(
                f"{self.file(name)} cannot be read: {where}: {first['msg']}"
            ) from None


def _marked(record: bytes) -> str:
    """A line of the log with its rank in front; nothing for one that a kill cut short."""
    try:
        line = LogRecord.model_validate_json(record)
    except ValidationError:
        return ""
    who = "launcher" if line.rank < 0 else f"rank {line.rank}"
    return f"[{who}] {line.text[: limits.EXCERPT_LINE_CHARS_MAX]}"


def folders_in(node_dir: Path) -> list[Folder]:
    """Return every attempt's folder on this node, oldest first."""
    return [
        Folder(path)
        for path in sorted(node_dir.iterdir())
        if not path.name.startswith(".") and path.is_dir() and not path.is_symlink()
    ]


def empty_trash(node_dir: Path) -> None:
    """Remove the rests of deleted folders. May take long."""
    for path in node_dir.glob(f"{_TRASH}*"):
        _remove(path)


def _remove(path: Path) -> None:
    files = Untrusted(path.parent.resolve())
    try:
        while not files.remove(path.name, seconds=_REMOVAL_SECONDS):
            log.info("a folder has very many entries: its removal goes on", folder=path.name)
    except OSError as error:
        log.warning("a folder cannot be removed", folder=path.name, error=repr(error))


def retire(folder: Folder, *, keep: int) -> None:
    """Delete the folder of an ended attempt, or keep it as one of the ``keep`` newest.

    On a disk that fails it stays, and the next agent deletes it.
    """
    try:
        _retire(folder, keep)
    except OSError as error:
        if error.errno not in BROKEN:
            raise
        log.warning("the folder of an ended attempt stays", folder=folder.path.name)


def _retire(folder: Folder, keep: int) -> None:
    if keep == 0 or not folder.exists():
        folder.delete()
        return
    parent = folder.path.parent
    folder.path.rename(parent / f"{_KEPT}{folder.path.name}")
    # Assignments have uuid7 ids, so names sort by age.
    for path in sorted(parent.glob(f"{_KEPT}*"))[:-keep]:
        Folder(path).delete()
