"""File of lines that another process follows; a full disk delays it and ends nothing.

Not here: the lines (``engine.runtime.telemetry``), and their upload (``worker.upload``).
"""

from __future__ import annotations

import os
import time
from collections import deque
from pathlib import Path
from typing import Final

from lockstep.system.files import FULL

WAITING_BYTES_MAX: Final = 64 * 2**20
"""Lines in memory while the disk is full. A run of 20 series and 10 steps a second fills it in two
hours; beyond it the oldest are dropped."""
RETRY_SECONDS: Final = 1.0
"""Between two tries on a full disk."""


class Spool:
    """Lines appended to a file. Not thread-safe.

    A line torn by a crash of an earlier run into the same folder is closed, so that ours stay
    whole.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        torn = path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n")
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._waiting: deque[bytes] = deque([b"\n"] if torn else [])
        self._waiting_bytes = sum(map(len, self._waiting))
        self._begun = False
        """True if the first waiting line is already partly in the file."""
        self._retry_at = 0.0

    def write(self, line: str) -> None:
        """Append a line, now or once the disk has space again.

        Raises
        ------
        OSError
            If the disk fails for another reason.
        """
        content = line.encode() + b"\n"
        self._waiting.append(content)
        self._waiting_bytes += len(content)
        if time.monotonic() >= self._retry_at:
            self._put()
        while self._waiting_bytes > WAITING_BYTES_MAX and len(self._waiting) > 1:
            oldest = 1 if self._begun else 0
            self._waiting_bytes -= len(self._waiting[oldest])
            del self._waiting[oldest]

    def close(self) -> None:
        """Write the rest if there is space for it, and close the file."""
        self._put()
        os.close(self._file)

    def _put(self) -> None:
        try:
            while self._waiting:
                first = self._waiting[0]
                written = os.write(self._file, first)
                self._waiting_bytes -= written
                self._begun = written < len(first)
                if self._begun:
                    self._waiting[0] = first[written:]
                else:
                    self._waiting.popleft()
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._retry_at = time.monotonic() + RETRY_SECONDS
