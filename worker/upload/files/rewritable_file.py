"""Reader of the metrics file, which a script may truncate, rewrite or replace at any time.

A *place* counts all bytes of the attempt's metrics: those of the file's present content follow
those of its earlier contents, as if the file had only grown. So the offset in the database never
goes back, and each line is stored exactly once. ``followed.json`` keeps the place at which the
present content begins, for a later agent.

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
import stat
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from io import FileIO
from typing import Final

from lockstep.domain.life.attempt import FollowedFile
from lockstep.worker.agent.folders import Folder
from lockstep.worker.upload.files.lines import LAST_BYTES, Line, Lines, lines_in
from lockstep.worker.upload.files.spool import Spool

LINES_MAX: Final = 1 << 18
"""Lines from the head of the content that are recognised, at 8 bytes each."""


@dataclass
class _Cursor:
    """Place in the metrics, and its surroundings in the file."""

    place: int
    last_bytes: bytes = b""
    """Before the place."""
    rest: bytes = b""
    """Begin of a line behind the place, at the last look."""
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
        self._path = folder.file(name)
        self._on_rewritten = on_rewritten
        self._file: FileIO | None = None
        self._lines = array("q")
        self._stored: _Cursor | None = None
        self._next: _Cursor | None = None
        self._known_bytes = 0
        """Size of the content whose lines the present content may repeat."""
        self.base = 0
        """Place of the first byte of the present content."""
        self.spool = Spool(self._path)

    def close(self) -> None:
        """Close the file. A later read opens it again."""
        if self._file is not None:
            os.close(self._file.fileno())
            self._file = None

    def read(self, place: int, *, last: bool) -> Lines:
        """Return whole lines after a place, without those that are stored already.

        ``offset`` of the answer is a place; all other offsets are bytes into the file.
        """
        at = self._cursor(place)
        if place < self.base:
            return Lines([], self.base, gone=self.base - place)
        while self._open():
            assert self._file is not None
            offset = at.place - self.base
            replaced = self._is_replaced()
            found = lines_in(self._file, offset, last=last or replaced)
            # After the read: the lines are from the content that was checked.
            if self._is_same(at, offset):
                if found.offset != offset or not replaced:
                    return self._take(at, found, offset)
            elif at.rest:
                return self._rest_of(at, offset)
            # The lines before it are stored first, because the file that is noted here must hold
            # for the place that a later agent finds.
            if self._stored is None or self._stored.place != at.place:
                break
            at = self._begin_again(at.place)
        return Lines([], place)

    def stored(self, place: int, *, kept_bytes: int) -> None:
        """Note that everything before a place is stored; see :meth:`Spool.stored`."""
        at = self._cursor(place)
        matched = at.matched
        if at.added:
            del self._lines[matched:]
            self._lines.extend(at.added[: LINES_MAX - matched])
            matched = len(self._lines)
        self._stored = _Cursor(place, at.last_bytes, at.rest, matched)
        self._next = None
        self._note()
        if not self._is_replaced():
            self.spool.stored(max(0, place - self.base), kept_bytes=kept_bytes)

    def _cursor(self, place: int) -> _Cursor:
        """Return the cursor at a place, from which the next read goes on."""
        if self._next is None or self._next.place != place:
            if self._stored is None or self._stored.place != place:
                self._go_to(place)
            assert self._stored is not None
            at = self._stored
            self._next = _Cursor(place, at.last_bytes, at.rest, at.matched)
        return self._next

    def _go_to(self, place: int) -> None:
        """Find a place that this agent has not stored: its first, or that of a restored database.

        If the file has another content than the one that was noted, the place is its begin.
        """
        self.close()
        noted = self._folder.followed()
        self.base = 0 if noted is None else noted.base
        self._lines, self._known_bytes = array("q"), 0
        self._stored = _Cursor(place)
        offset = place - self.base
        if offset <= 0:
            return
        if self._open():
            assert self._file is not None
            known = _Cursor(place)
            known_offset = offset
            if noted is not None:
                known.last_bytes = bytes.fromhex(noted.last_bytes)
                known_offset = noted.place - self.base
            if self._size() >= offset and self._is_same(known, known_offset):
                self._stored.last_bytes = self._bytes_before(offset, LAST_BYTES)
                self._recognise(offset)
                self._stored.matched = len(self._lines)
                return
        self._known_bytes = offset
        self._begin_again(place)

    def _recognise(self, end: int) -> None:
        """Read the stored lines again, to recognise them in a later content."""
        assert self._file is not None
        offset = 0
        while offset < end and len(self._lines) < LINES_MAX:
            found = lines_in(self._file, offset, last=True)
            if found.hole is not None or found.offset == offset:
                return
            self._lines.extend(hash(line.text) for line in found.lines if line.end <= end)
            offset = found.offset

    def _begin_again(self, place: int) -> _Cursor:
        """Take the file behind the name as another content, which begins at a place."""
        self.close()
        self._known_bytes = max(self._known_bytes, place - self.base)
        self.base = place
        self.spool = Spool(self._path)
        self._stored = _Cursor(place)
        self._next = _Cursor(place)
        self._note()
        return self._next

    def _take(self, at: _Cursor, found: Lines, offset: int) -> Lines:
        at.rest = found.rest
        if found.offset == offset:
            return found._replace(offset=at.place)
        at.place = self.base + found.offset
        if found.last_bytes:
            at.last_bytes = (at.last_bytes + found.last_bytes)[-LAST_BYTES:]
        else:
            at.last_bytes = self._bytes_before(found.offset, LAST_BYTES)
        return found._replace(lines=self._unknown(at, found.lines), offset=at.place)

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

    def _rest_of(self, at: _Cursor, offset: int) -> Lines:
        """Return a last line without a newline that was overwritten after it was read.

        It counts if it was complete.
        """
        rest, at.rest = at.rest.strip(), b""
        end = offset + len(rest)
        at.place = self.base + end
        at.last_bytes = (at.last_bytes + rest)[-LAST_BYTES:]
        if not (rest.startswith(b"{") and rest.endswith(b"}")):
            return Lines([], at.place)
        return Lines(self._unknown(at, [Line(offset, end, rest)]), at.place)

    def _is_same(self, at: _Cursor, offset: int) -> bool:
        """Return whether the file still has what was read of it."""
        assert self._file is not None
        begin = offset - len(at.last_bytes)
        expected = at.last_bytes + at.rest
        return os.pread(self._file.fileno(), len(expected), max(0, begin)) == expected

    def _is_replaced(self) -> bool:
        """Return whether another file has the name now."""
        if self._file is None:
            return False
        try:
            behind_name = self._path.stat()
        except OSError:
            return False
        opened = os.fstat(self._file.fileno())
        return (behind_name.st_dev, behind_name.st_ino) != (opened.st_dev, opened.st_ino)

    def _bytes_before(self, offset: int, count: int) -> bytes:
        assert self._file is not None
        begin = max(0, offset - count)
        return os.pread(self._file.fileno(), offset - begin, begin)

    def _size(self) -> int:
        assert self._file is not None
        return os.fstat(self._file.fileno()).st_size

    def _open(self) -> bool:
        """Open the file unless it is open; False if there is no regular file.

        It stays open: a file that was renamed or deleted is read to its end.
        """
        if self._file is not None:
            return True
        try:
            # Never waits: user code may have put a pipe there.
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return False
        self._file = FileIO(descriptor, "rb", closefd=False)
        return True

    def _note(self) -> None:
        """Write ``followed.json``. A full disk only leaves a later agent with an earlier one."""
        assert self._stored is not None
        with contextlib.suppress(OSError):
            self._folder.write_followed(
                FollowedFile(
                    base=self.base,
                    place=self._stored.place,
                    last_bytes=self._stored.last_bytes.hex(),
                )
            )

    def __del__(self) -> None:
        self.close()
