"""Log output whose writes never raise: a full disk or a closed pipe must not end a main loop.

Not here: the format of the lines (``system.logs``), and the file behind the descriptor, which
others open and rotate (``client.local.supervisor``).
"""

from __future__ import annotations

import os
import threading
from typing import Final

LINE_BYTES_MAX: Final = 64 * 1024
"""Longer texts are cut: a log with one endless line is of no use."""


class LogStream:
    """Text stream over a file descriptor whose ``write`` drops what it cannot write.

    Nothing is buffered: a buffer that cannot be flushed raises again with every later line and at
    the program's exit. The next line that can be written reports the number of those dropped.
    Safe to use from any thread.

    Parameters
    ----------
    descriptor : int
        Stays open: this object does not own it.
    """

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.RLock()
        self._cut = False
        """True after a line of which only the beginning was written."""
        self.dropped = 0
        """Texts that were not written since the last report."""

    def write(self, text: str) -> int:
        """Write the text, or drop it; never raises. Returns its length, as text streams do."""
        content = text.encode(self.encoding, self.errors)
        if len(content) > LINE_BYTES_MAX:
            content = content[:LINE_BYTES_MAX] + (b"\n" if text.endswith("\n") else b"")
        with self._lock:
            if self.dropped and not self._put(self._report()):
                self.dropped += bool(text.strip())
                return len(text)
            self.dropped = 0
            if not self._put(content):
                self.dropped += bool(text.strip())  # ``print`` writes its newline as a text
        return len(text)

    def drop(self) -> None:
        """Count a line that could not be formatted."""
        with self._lock:
            self.dropped += 1

    def drop_record(self, record: object) -> None:
        """Count a record of ``logging`` that could not be formatted."""
        del record
        self.drop()

    def flush(self) -> None:
        """Do nothing: ``write`` keeps nothing back."""

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        try:
            return os.isatty(self._descriptor)
        except OSError:
            return False

    def writable(self) -> bool:
        return True

    def _report(self) -> bytes:
        newline = "\n" if self._cut else ""
        return f"{newline}{self.dropped} lines of this log could not be written\n".encode()

    def _put(self, content: bytes) -> bool:
        while content:
            try:
                written = os.write(self._descriptor, content)
            except (OSError, ValueError):
                return False
            self._cut = not content[:written].endswith(b"\n")
            content = content[written:]
        return True
