"""Log of an attempt on its node's disk: numbered segments of JSON lines, bounded by uploads.

A record is written in one ``write`` of whole lines, unbuffered, so a reader of whole lines loses
nothing when the launcher is killed. The agent is the only reader, and deletes the oldest of the
segments before ``logs/uploaded``.

Not here: reading the ranks' pipes (``engine.launcher.output.streams``), uploads
(``worker.upload.logs``).
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from lockstep.domain import limits
from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import UploadedFile
from lockstep.engine.launcher.bounds import Bounds
from lockstep.engine.launcher.files import read_model
from lockstep.system.untrusted import Untrusted


class LogFields(NamedTuple):
    """The fields of ``attempt.LogRecord``.

    A model per line would cost more than everything else together.
    """

    time: float
    rank: int
    stream: Literal["stdout", "stderr", "launcher"]
    text: str


class Segments:
    """Appends lines; any thread may. Starts behind segments that are there already."""

    def __init__(self, folder: Path, bounds: Bounds):
        self._files = Untrusted(folder)
        self._files.make_folder(attempt.LOGS)
        self._bounds = bounds
        self._lock = threading.Lock()
        self._stored = UploadedFile(segment=0, offset=0)
        self._sizes = {
            int(stem): entry.bytes
            for entry in self._files.names(attempt.LOGS, most=limits.LOG_SEGMENTS_MAX)
            if (stem := entry.name.removesuffix(".jsonl")).isdecimal()
        }
        self._number = max(self._sizes, default=-1) + 1
        self._file = self._open()

    def write(self, lines: Iterable[LogFields]) -> None:
        """Append lines in order, starting new segments when one is full.

        Raises
        ------
        OSError
            If the disk is full. Some of the lines may then be in the log, but no partial line.
        """
        with self._lock:
            pending: list[bytes] = []
            size = self._sizes[self._number]
            for line in lines:
                record = (
                    json.dumps(line._asdict(), ensure_ascii=False, separators=(",", ":")).encode()
                    + b"\n"
                )
                if size and size + len(record) > self._bounds.segment_bytes:
                    self._append(pending)
                    os.close(self._file)
                    self._number += 1
                    self._file = self._open()
                    pending, size = [], 0
                pending.append(record)
                size += len(record)
            self._append(pending)

    def log_line(self, text: str, *, rank: int = -1) -> None:
        """Add lines of the launcher itself, about a rank or the gang, if the disk has space.

        A kill must not fail because of a log line.
        """
        now = time.time()
        with contextlib.suppress(OSError):
            self.write(LogFields(now, rank, "launcher", line) for line in text.splitlines())

    def is_full(self) -> bool:
        """Return whether more is unstored than the log may hold.

        Reads ``logs/uploaded`` only if needed.
        """
        with self._lock:
            if self._unstored_bytes() <= self._bounds.backlog_bytes_max:
                return False
            self._stored = read_model(self._files, attempt.UPLOADED, UploadedFile) or self._stored
            # Sizes of uploaded segments are not needed again, except for the one that is being
            # written.
            for number in [
                number for number in self._sizes if number < min(self._stored.segment, self._number)
            ]:
                del self._sizes[number]
            return self._unstored_bytes() > self._bounds.backlog_bytes_max

    def _unstored_bytes(self) -> int:
        behind = sum(size for number, size in self._sizes.items() if number >= self._stored.segment)
        return behind - self._stored.offset

    def close(self) -> None:
        """Close the current segment; nothing may be written afterwards."""
        with self._lock:
            os.close(self._file)

    def _open(self) -> int:
        self._sizes[self._number] = 0
        name = f"{attempt.LOGS}/{attempt.segment_name(self._number)}"
        # A rank may have put something else there.
        self._files.remove(name, seconds=1.0)
        return self._files.descriptor(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL)

    def _append(self, records: list[bytes]) -> None:
        rest = memoryview(b"".join(records))
        size = len(rest)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            os.ftruncate(self._file, self._sizes[self._number])
            raise
        self._sizes[self._number] += size
