"""Uploader of one of an attempt's files into the series database, each line exactly once.

The stored offset of a file is in the attempt's stream row and moves in the transaction that stores
the data before it. An agent that dies between read and commit reads the same lines again; one that
dies after the commit finds the new offset. ``append`` refuses another offset than the stored one, a
stale token and a sealed stream, so neither two agents nor an old attempt can add data.

A database that was restored from a backup has an earlier offset than this agent has stored, or no
stream. The stream is then opened again, and the file is sent from the database's offset.

Not here: the files (``worker.upload.metrics``, ``worker.upload.logs``, ``worker.upload.system``,
``worker.upload.tensorboard``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import structlog
from sqlalchemy.exc import IntegrityError

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.storage.db.database import Database
from lockstep.storage.series import streams
from lockstep.worker.folders import Folder
from lockstep.worker.upload.stream import Stream, is_open, state_of

log = structlog.get_logger(__name__)

Offset = TypeVar("Offset")
Record = TypeVar("Record")

POISON_TRIES = 5
"""A batch that the database refuses this often while it answers is dropped, with a warning: behind
it wait others."""


class Chunk(NamedTuple, Generic[Offset, Record]):
    """Next piece of a file, and the offset after it."""

    before: Offset
    after: Offset
    records: list[Record]
    more: bool = True
    """The file may have had more when it was read. Otherwise the next piece waits for the loop's
    pause: a job that writes all the time is stored a few times a second, not line by line."""


class FileUploader(ABC, Generic[Offset, Record]):
    """One file's way into the database."""

    what = ""
    """Plural noun for the file's contents in the job's events; without one they omit it."""

    def __init__(
        self, database: Database, folder: Folder, stream: Stream, warn: Callable[[str], None]
    ):
        self._database = database
        self._folder = folder
        self._stream = stream
        self._warn = warn
        self._offset: Offset | None = None
        self._stored: Offset | None = None
        """The last stored offset that this agent has read or written."""
        self._must_compare = False
        self._poisoned: tuple[Offset, int] | None = None
        self.on_set_back: Callable[[str], None] = lambda _what: None
        """Called after a restore of the database, in the uploader's thread.

        Its argument is ``what``, or empty if this uploader misses nothing.
        """
        self.refused = False
        """The stream is sealed or belongs to another token.

        Nothing of this attempt is wanted any more.
        """

    def begin(self, state: streams.StreamState | None) -> None:
        """Continue from where the stream is, as its opener has read it.

        Without this it is read by the first step.
        """
        if state is not None:
            self._continue_from(state)

    def compare_offset(self) -> None:
        """Compare the offset with the database's before the next step. From any thread."""
        self._must_compare = True

    def step(self, last: bool) -> bool:
        """Upload one batch. See ``worker.upload.upload_loop``.

        Raises
        ------
        NotOpenError
        """
        if self.refused:
            return False
        if self._offset is None or self._must_compare:
            self._must_compare = False
            self._read_offset()
        if self._offset is None:
            return False
        batch = self._read(self._offset, last)
        if batch is None:
            return last and self._was_set_back(self._offset)
        if self._poisoned == (batch.before, POISON_TRIES):
            self._warn(
                f"{len(batch.records)} records were rejected by the database and are dropped"
            )
            batch = batch._replace(records=[])
        try:
            accepted = self._append(batch)
        except Exception as error:
            # It is not certain that it was committed: the offset is read again.
            self._offset = None
            self._count_poison(batch.before, error)
            raise
        if accepted:
            self._take(batch.after)
        else:
            self._read_offset()
            # Refused though this is the offset: the stream is a later attempt's, or has another
            # token.
            self.refused = self.refused or (
                self._offset == batch.before and not is_open(self._database, self._stream)
            )
        return last or batch.more or not accepted

    def _count_poison(self, before: Offset, error: Exception) -> None:
        if is_poison(error):
            tries = self._poisoned[1] if self._poisoned and self._poisoned[0] == before else 0
            self._poisoned = (before, tries + 1)

    def _was_set_back(self, offset: Offset) -> bool:
        """Everything is sent: check that the database still has it."""
        self._read_offset()
        return not self.refused and self._offset != offset

    def _read_offset(self) -> None:
        self._offset = None
        self._continue_from(state_of(self._database, self._stream, lambda: self.on_set_back("")))

    def _continue_from(self, state: streams.StreamState) -> None:
        """Take the file's offset from the stream; ``refused`` if nothing can be added any more."""
        if state.sealed:
            self.refused, self._offset = True, None
            return
        offset, stored = self._offset_of(state), self._stored
        self._take(offset)
        if stored is not None and self._is_behind(offset, stored):
            log.warning(
                "the database was restored",
                assignment=self._stream.assignment_id,
                stream=type(self).__name__,
                stored=stored,
                offset=offset,
            )
            self._set_back()
            self.on_set_back(self.what)

    def _set_back(self) -> None:
        """Records are sent again: the database was restored."""

    def _take(self, offset: Offset) -> None:
        self._offset = self._stored = offset
        self._note_stored(offset)

    @abstractmethod
    def _offset_of(self, state: streams.StreamState) -> Offset: ...

    @abstractmethod
    def _is_behind(self, offset: Offset, stored: Offset) -> bool:
        """Return whether ``offset`` lies before ``stored``."""

    @abstractmethod
    def _read(self, offset: Offset, last: bool) -> Chunk[Offset, Record] | None:
        """Return the piece after ``offset``; None if there is none."""

    @abstractmethod
    def _append(self, batch: Chunk[Offset, Record]) -> bool: ...

    def _note_stored(self, offset: Offset) -> None:
        """Everything before ``offset`` is stored."""


def is_poison(error: Exception) -> bool:
    """Return whether the written data itself was refused.

    Otherwise a database is away or full, which is temporary.
    """
    if isinstance(error, LockstepError):
        return error.code is ErrorCode.INVALID
    return isinstance(
        error, ValueError | TypeError | LookupError | ArithmeticError | IntegrityError
    )
