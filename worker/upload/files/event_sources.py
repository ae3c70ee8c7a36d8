"""Sources of a script's event files: one for each content, whatever its name is.

A source has its offset in the database. A file that is renamed keeps its source, and one that is
written again under its name gets another, from its beginning. A content is recognised by its first
record, which has the time at which its writer began. ``event_files.json`` keeps the sources for a
later agent. A file without such a record has the source of its name.

Not here: the records (``domain.training.event_files``), the uploader
(``worker.upload.tensorboard``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from lockstep.domain import limits
from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import EventFile, EventFilesFile
from lockstep.domain.training import event_files
from lockstep.worker.folders import Folder

HEAD_BYTES: Final = 512
"""Most of a first record: writers put some forty bytes into it."""


class EventSources:
    """Sources of the event files in an attempt's folder, by name."""

    def __init__(self, folder: Folder):
        self._folder = folder
        noted = folder.event_files()
        self._known: dict[str, EventFile] = {} if noted is None else dict(noted.files)
        self._used = set() if noted is None else set(noted.used)

    def of(self, name: str) -> str:
        """Return the source of a file."""
        return self._known[name].source if name in self._known else name

    def is_same(self, name: str, head: bytes) -> bool:
        """Return whether the content that begins with ``head`` is the one that was found last."""
        return name not in self._known or self._known[name].head == _first(head)

    def find(self, names: Sequence[str]) -> list[str]:
        """Note the present contents of files; return the names of the rewritten ones."""
        heads = {name: _first(self._head(name)) for name in names}
        changed = {
            name: head
            for name, head in heads.items()
            if head is not None and not (name in self._known and self._known[name].head == head)
        }
        if not changed:
            return []
        before = dict(self._known)
        moved = {
            old: entry
            for old, entry in before.items()
            if heads.get(old) != entry.head and entry.head in changed.values()
        }
        for old in moved:
            del self._known[old]
        rewritten = []
        for name, head in changed.items():
            source = next((old.source for old in moved.values() if old.head == head), None)
            if source is None:
                source = self._new(name)
                if name in before and name not in moved:
                    rewritten.append(name)
            if source is not None:
                self._known[name] = EventFile(head=head, source=source)
        with contextlib.suppress(OSError):  # A full disk: a later agent reads renamed files again.
            self._folder.write_event_files(
                EventFilesFile(files=self._known, used=sorted(self._used))
            )
        return rewritten

    def _new(self, name: str) -> str | None:
        if len(self._used) >= limits.TENSORBOARD_SOURCES_MAX:
            return None
        source, number = name, 1
        while source in self._used:
            number += 1
            source = f"{name}#{number}"
        self._used.add(source)
        return source

    def _head(self, name: str) -> bytes:
        try:
            with self._folder.files.open(f"{attempt.TENSORBOARD}/{name}") as file:
                return file.read(HEAD_BYTES)
        except OSError:
            return b""


def _first(data: bytes) -> str | None:
    """Return the first record of a file in hexadecimal digits, if its writer can be told by it."""
    return event_files.writer_record(data[:HEAD_BYTES]).hex() or None
