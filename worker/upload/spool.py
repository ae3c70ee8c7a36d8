"""The part of a spool that is stored already: kept for a while, because the database may be restored from a backup.

Not here: giving bytes back to the disk (``worker.upload.sparse_files``), and reading what is left (``worker.upload.tail``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from lockstep.worker.upload import sparse_files

PIECE_BYTES: Final = 8 * 1024 * 1024
"""What is stored is given back to the disk in pieces of this size."""
END_BYTES: Final = 1024 * 1024
"""Never given back: people and the launcher look there for the last step."""


class Spool:
    """One file that another process appends to."""

    def __init__(self, path: Path, *, piece_bytes: int = PIECE_BYTES) -> None:
        self._path = path
        self._piece_bytes = piece_bytes
        self._place = 0
        self.freed = 0
        """Everything before this place was given back."""

    def stored(self, place: int, *, kept_bytes: int) -> None:
        """Note that everything before ``place`` is stored, and keep the last ``kept_bytes`` of it."""
        self._place = place
        self._free(place - kept_bytes, self._piece_bytes)

    def hollow(self, bytes_max: int) -> int:
        """As ``holes.hollow``, once what is stored is given back: what waits to be stored needs the room.

        Returns
        -------
        int
            Bytes freed of what is not stored.
        """
        if sparse_files.taken_bytes(self._path) > bytes_max:
            self._free(self._place - END_BYTES, 1)
        return sparse_files.hollow(self._path, bytes_max)

    def _free(self, end: int, at_least: int) -> None:
        if end - self.freed >= at_least:
            sparse_files.punch(self._path, self.freed, end)
            self.freed = end
