"""The part of a spool that is stored already.

Kept for a while, because the database may be restored from a backup.

Not here: release of disk blocks (``worker.upload.files.sparse_files``), and reads
(``worker.upload.files.lines``).
"""

from __future__ import annotations

from typing import Final

from lockstep.system.untrusted import Untrusted
from lockstep.worker.upload.files import sparse_files

PIECE_BYTES: Final = 8 * 1024 * 1024
"""Stored data is released from the disk in pieces of this size."""
END_BYTES: Final = 1024 * 1024
"""Never released: users and the launcher read the last step there."""


class Spool:
    """One file that another process appends to."""

    def __init__(self, files: Untrusted, name: str, *, piece_bytes: int = PIECE_BYTES) -> None:
        self._files, self._name = files, name
        self._piece_bytes = piece_bytes
        self._offset = 0
        self.freed = 0
        """Everything before this offset was given back."""

    def stored(self, offset: int, *, kept_bytes: int) -> None:
        """Note that everything before ``offset`` is stored; keep the last ``kept_bytes`` of it."""
        self._offset = offset
        self._free(offset - kept_bytes, self._piece_bytes)

    def shrink_to(self, bytes_max: int) -> int:
        """Release stored data first, then as ``sparse_files.shrink_to``.

        Unstored data needs the space.

        Returns
        -------
        int
            Freed bytes of unstored data.
        """
        if sparse_files.taken_bytes(self._files, self._name) > bytes_max:
            self._free(self._offset - END_BYTES, 1)
        return sparse_files.shrink_to(self._files, self._name, bytes_max)

    def _free(self, end: int, at_least: int) -> None:
        if end - self.freed >= at_least:
            sparse_files.punch(self._files, self._name, self.freed, end)
            self.freed = end
