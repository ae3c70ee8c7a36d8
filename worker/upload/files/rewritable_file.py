"""Reader of the metrics file, which a script may truncate, rewrite or replace at any time.

An *offset* counts all bytes of the attempt's metrics: those of the file's present content follow
those of its earlier contents, as if the file had only grown. So the offset in the database never
goes back, and each line is stored exactly once. ``followed.json`` keeps the offset at which the
present content begins, for a later agent. A *file offset* counts the bytes of the present content.

Another content is recognised by the last bytes before the offset, and by the file behind the name.
The open file is read to its end before the next one. Lines at the head of the new content that are
stored already, in the same order, are passed over: a history that is written again at each step,
and a file that is cut back to a checkpoint, store no point twice. Only a file that became shorter
while no agent ran is read from its beginning whatever it contains.

Not here: the lines' meaning and the stored offset (``worker.upload.metrics``).
"""

from __future__ import annotations

import contextlib
import os
import weakref
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from io import FileIO
from typing import Final

from lockstep.domain.life.attempt import FollowedFile
from lockstep.worker.folders import Folder
from lockstep.worker.upload.files.lines import LAST_BYTES, Line, Lines, lines_in
from lockstep.worker.upload.files.spool import Spool

LINES_MAX: Final = 1 << 18
"""Lines from the head of the content that are recognised, at 8 bytes each."""


@dataclass
class _Cursor:
    """Offset in the metrics, and its surroundings in the file."""

    offset: int
    last_bytes: bytes = b""
    """Before the offset."""
    rest: bytes = b""
    """Begin of a line behind the offset, at the last look."""
    matched: int = 0
    """Lines from the head that equal the first stored ones."""
    added: list[int] = field(default_factory=list)
    """Hashes of the lines after these."""


class RewritableFile:
    """One file of lines, and its spool. ``on_rewritten`` is called before changed lines are read.

    Parameters
    ----------
    folder : Folder
    name : str
        Name of the file in the folder.
    on_rewritten : callable
    """

    def __init__(self, folder: Folder, name: str, on_rewritten: Callable[[], None]):
        self._folder = folder
        self._name = name
        self._on_rewritten = on_rewritten
        self._file: FileIO | None = None
        self._lines = array("q")
        self._stored: _Cursor | None = None
        self._next: _Cursor | None = None
        self._known_bytes = 0
        """Size of the content whose lines the present content may repeat."""
        self.base = 0
        """Offset of the first byte of the present content."""
        self.spool = Spool(self._folder.files, self._name)

    def close(self) -> None:
        """Close the file. A later read opens it again."""
        if self._file is not None:
            self._at_end.detach()
            self._file.close()
            self._file = None

    def read(self, offset: int, *, last: bool) -> Lines:
        """Return whole lines after an offset, without those that are stored already.

        ``Lines.offset`` of the answer is an offset; its lines have file offsets.
        """
        at = self._cursor(offset)
        if offset < self.base:
            return Lines([], self.base, gone=self.base - offset)
        while self._open():
            assert self._file is not None
            file_offset = at.offset - self.base
            replaced = self._is_replaced()
            found = lines_in(self._file, file_offset, last=last or replaced)
            # After the read: the lines are from the content that was checked.
            if self._is_same(at, file_offset):
                if found.offset != file_offset or not replaced:
                    return self._take(at, found, file_offset)
            elif at.rest:
                return self._rest_of(at, file_offset)
            # The lines before it are stored first, because the file that is noted here must hold
            # for the offset that a later agent finds.
            if self._stored is None or self._stored.offset != at.offset:
                break
            at = self._begin_again(at.offset)
        return Lines([], offset)

    def stored(self, offset: int, *, kept_bytes: int) -> None:
        """Note that everything before an offset is stored; see :meth:`Spool.stored`."""
        at = self._cursor(offset)
        matched = at.matched
        if at.added:
            del self._lines[matched:]
            self._lines.extend(at.added[: LINES_MAX - matched])
            matched = len(self._lines)
        self._stored = _Cursor(offset, at.last_bytes, at.rest, matched)
        self._next = None
        self._note()
        if not self._is_replaced():
            self.spool.stored(max(0, offset - self.base), kept_bytes=kept_bytes)

    def _cursor(self, offset: int) -> _Cursor:
        """Return the cursor at an offset, from which the next read continues."""
        if self._next is None or self._next.offset != offset:
            if self._stored is None or self._stored.offset != offset:
                self._go_to(offset)
            assert self._stored is not None
            at = self._stored
            self._next = _Cursor(offset, at.last_bytes, at.rest, at.matched)
        return self._next

    def _go_to(self, offset: int) -> None:
        """Find an offset that this agent has not stored: its first, or that of a restored database.

        If the file has another content than the one that was noted, the offset is its begin.
        """
        self.close()
        noted = self._folder.followed()
        self.base = 0 if noted is None else noted.base
        self._lines, self._known_bytes = array("q"), 0
        self._stored = _Cursor(offset)
        file_offset = offset - self.base
        if file_offset <= 0:
            return
        if self._open():
            assert self._file is not None
            known = _Cursor(offset)
            known_offset = file_offset
            if noted is not None:
                known.last_bytes = bytes.fromhex(noted.last_bytes)
                known_offset = noted.offset - self.base
            if self._size() >= file_offset and self._is_same(known, known_offset):
                self._stored.last_bytes = self._bytes_before(file_offset, LAST_BYTES)
                self._recognise(file_offset)
                self._stored.matched = len(self._lines)
                return
        self._known_bytes = file_offset
        self._begin_again(offset)

    def _recognise(self, end: int) -> None:
        """Read the stored lines again, to recognise them in a later content."""
        assert self._file is not None
        file_offset = 0
        while file_offset < end and len(self._lines) < LINES_MAX:
            found = lines_in(self._file, file_offset, last=True)
            if found.hole is not None or found.offset == file_offset:
                return
            self._lines.extend(hash(line.text) for line in found.lines if line.end <= end)
            file_offset = found.offset

    def _begin_again(self, offset: int) -> _Cursor:
        """Take the file behind the name as another content, which begins at an offset."""
        self.close()
        self._known_bytes = max(self._known_bytes, offset - self.base)
        self.base = offset
        self.spool = Spool(self._folder.files, self._name)
        self._stored = _Cursor(offset)
        self._next = _Cursor(offset)
        self._note()
        return self._next

    def _take(self, at: _Cursor, found: Lines, file_offset: int) -> Lines:
        at.rest = found.rest
        if found.offset == file_offset:
            return found._replace(offset=at.offset)
        at.offset = self.base + found.offset
        if found.last_bytes:
            at.last_bytes = (at.last_bytes + found.last_bytes)[-LAST_BYTES:]
        else:
            at.last_bytes = self._bytes_before(found.offset, LAST_BYTES)
        return found._replace(lines=self._unknown(at, found.lines), offset=at.offset)

    def _unknown(self, at: _Cursor, lines: list[Line]) -> list[Line]:
        """Return the lines without those at the head of the content that are stored already."""
        new = []
        for line in lines:
            mark = hash(line.text)
            if not at.added and at.matched < len(self._lines) and self._lines[at.matched] == mark:
                at.matched += 1
                continue
            if line.offset < self._known_bytes:
                self._on_rewritten()
            self._known_bytes = 0
            at.added.append(mark)
            new.append(line)
        return new

    def _rest_of(self, at: _Cursor, file_offset: int) -> Lines:
        """Return a last line without a newline that was overwritten after it was read.

        It counts if it was complete.
        """
        rest, at.rest = at.rest.strip(), b""
        end = file_offset + len(rest)
        at.offset = self.base + end
        at.last_bytes = (at.last_bytes + rest)[-LAST_BYTES:]
        if not (rest.startswith(b"{") and rest.endswith(b"}")):
            return Lines([], at.offset)
        return Lines(self._unknown(at, [Line(file_offset, end, rest)]), at.offset)

    def _is_same(self, at: _Cursor, file_offset: int) -> bool:
        """Return whether the file still has what was read of it."""
        assert self._file is not None
        begin = file_offset - len(at.last_bytes)
        expected = at.last_bytes + at.rest
        return os.pread(self._file.fileno(), len(expected), max(0, begin)) == expected

    def _is_replaced(self) -> bool:
        """Return whether another file has the name now."""
        if self._file is None:
            return False
        behind_name = self._folder.files.status(self._name)
        if behind_name is None:
            return False
        opened = os.fstat(self._file.fileno())
        return (behind_name.st_dev, behind_name.st_ino) != (opened.st_dev, opened.st_ino)

    def _bytes_before(self, file_offset: int, count: int) -> bytes:
        assert self._file is not None
        begin = max(0, file_offset - count)
        return os.pread(self._file.fileno(), file_offset - begin, begin)

    def _size(self) -> int:
        assert self._file is not None
        return os.fstat(self._file.fileno()).st_size

    def _open(self) -> bool:
        """Open the file unless it is open; False if there is no regular file.

        It stays open: a file that was renamed or deleted is read to its end.
        """
        if self._file is not None:
            return True
        with contextlib.suppress(OSError):
            self._file = self._folder.files.open(self._name)
            # Not __del__: in a cycle the file may be finalized first, with a warning.
            self._at_end = weakref.finalize(self, self._file.close)
        return self._file is not None

    def _note(self) -> None:
        """Write ``followed.json``. A full disk only leaves a later agent with an earlier one."""
        assert self._stored is not None
        with contextlib.suppress(OSError):
            self._folder.write_followed(
                FollowedFile(
                    base=self.base,
                    offset=self._stored.offset,
                    last_bytes=self._stored.last_bytes.hex(),
                )
            )
