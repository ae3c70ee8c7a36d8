"""Space for new jobs on the disk of the jobs database, and whether it accepts writes at all.

A file on this machine's disk has a reserve that is measured before each submit. The disk of a
server is not visible from here: its refusal is remembered, and one statement then tries whether
it still holds. A disk that became read-only after an error is found by a try.

Not here: the refusal of a statement itself (``storage.db.driver_errors``).
"""

from __future__ import annotations

import errno
import shutil
import time
from pathlib import Path
from typing import Final

from sqlalchemy import URL, text
from sqlalchemy.orm import Session

from lockstep.domain import limits
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.storage.db.driver_errors import ReadOnlyError
from lockstep.system.files import try_to_write

REMEMBER_SECONDS: Final = 10.0
"""A refusal of a file counts for so long: its cause may be a quota, which is not measured here."""
TRY: Final = text(
    "CREATE TEMPORARY TABLE lockstep_room ON COMMIT DROP AS "
    "SELECT repeat('x', 1000) AS filler FROM generate_series(1, 1000)"
)
"""Extends a file of the server by a megabyte."""
IS_READ_ONLY: Final = text("SELECT current_setting('transaction_read_only') = 'on'")


class Room:
    """Space of one database.

    Parameters
    ----------
    url : URL
    """

    def __init__(self, url: URL) -> None:
        name = url.database if url.get_backend_name() == "sqlite" else None
        self._folder = Path(name).absolute().parent if name and name != ":memory:" else None
        self._refused_at: float | None = None

    def note(self, *, refused: bool) -> None:
        """Remember how the disk answered the last write."""
        self._refused_at = time.monotonic() if refused else None

    def require(self) -> None:
        """Check the reserve of a file. Always passes for a server.

        Raises
        ------
        LockstepError
            ``STORAGE_FULL`` if new jobs are not accepted.
        """
        if self._folder is None:
            return
        free = shutil.disk_usage(self._folder).free
        if free < limits.DATABASE_FREE_BYTES_MIN:
            needed = limits.DATABASE_FREE_BYTES_MIN
            raise LockstepError(
                ErrorCode.STORAGE_FULL,
                f"the disk of the jobs database has {free / 2**20:.1f} MiB free; new jobs are "
                f"accepted from {needed / 2**20:.0f} MiB",
                next_step="Free space on the database's disk, then try again.",
            )

    @property
    def is_file(self) -> bool:
        """Return whether the database is a file on a disk of this machine."""
        return self._folder is not None

    def require_writable_disk(self) -> None:
        """Try the disk of a file.

        Raises
        ------
        ReadOnlyError
        """
        assert self._folder is not None, "only a file has a disk here"
        try:
            try_to_write(str(self._folder))
        except OSError as error:
            # Any other error is no news about the file that exists, such as no free inode.
            if error.errno in {errno.EROFS, errno.EIO}:
                raise ReadOnlyError("jobs") from error

    def require_writable_server(self, session: Session) -> None:
        """Ask a server.

        Raises
        ------
        ReadOnlyError
            If it is a standby, or its transactions are read-only by default.
        """
        if session.execute(IS_READ_ONLY).scalar_one():
            raise ReadOnlyError("jobs")

    def must_try(self) -> bool:
        """Return whether the server refused the last write, so that :meth:`attempt` must decide."""
        return self._refused_at is not None and self._folder is None

    def attempt(self, session: Session) -> None:
        """Write and drop a megabyte on a server; fails as a submit would."""
        session.execute(TRY)

    def refused_lately(self) -> bool:
        """Return whether a write to the file was refused a moment ago."""
        return (
            self._refused_at is not None
            and self._folder is not None
            and time.monotonic() - self._refused_at < REMEMBER_SECONDS
        )
