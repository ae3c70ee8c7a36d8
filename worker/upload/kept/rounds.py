"""Rounds in which an agent stores the files that a job has written, while it runs and at its end.

A round lists the names, copies what is new into the store, and writes all rows in one transaction.
A file is new if its stamp is neither that of the unpacked code nor that of the stored one. It is
copied once it was still for ``STILL_SECONDS``, in the order of the last changes; one that is not
holds back those that were changed after it. So a file is stored before a file that names it. One
that never rests is copied all the same, if two reads agree: a small one in every second round, a
large one less often.

What was deleted on the node is deleted in the list, as on a shared disk. After the end of all
processes a last round stores everything.

Not here: the names (``worker.upload.kept.scanning``), rows (``storage.attempts.kept_files``).
"""

from __future__ import annotations

import errno
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any, Final

import structlog

from lockstep.domain import limits
from lockstep.domain.life.attempt import AssignmentFile, KeptMemory
from lockstep.domain.training.memory import in_words
from lockstep.storage.attempts import kept_files
from lockstep.storage.attempts.kept_files import KeptFile, KeptSet, Round, RoundResult
from lockstep.storage.db.database import Database
from lockstep.storage.objects.blobs import FILES, BlobStore
from lockstep.storage.series import streams
from lockstep.system.beneath import UnsafeFileError
from lockstep.system.patterns import Patterns
from lockstep.worker.folders import Folder
from lockstep.worker.upload.kept import indexes
from lockstep.worker.upload.kept.scanning import Scan, SeenFile, readable, scan
from lockstep.worker.upload.stream import Stream

log = structlog.get_logger(__name__)

STILL_SECONDS: Final = 2.0
UNSENT_SECONDS: Final = 600.0
"""Longest wait of a file that never rests."""
RESTLESS_BYTES_PER_SECOND: Final = 100_000
"""Average that is copied of such a file."""
PATIENCE_SECONDS: Final = 300.0
"""The end of an attempt waits so long for a store or a database that refuses its files."""
ROOM_SECONDS: Final = 60.0
"""The end of an attempt waits so long for a local store whose disk is nearly full."""
NAMED_MAX: Final = 5
"""Files in one event."""
_NO_ROOM: Final = "the disk of the store is nearly full"
_LATEST_SECONDS: Final = 253_402_300_000.0
"""Year 9999: a job may set any time."""

Report = Callable[[str, str, dict[str, Any]], None]
"""Add an event: kind, message, data."""


class KeptFilesUploader:
    """Files of one assignment. See ``worker.upload.upload_loop`` for :meth:`step`."""

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        folder: Folder,
        stream: Stream,
        assignment: AssignmentFile,
        *,
        report: Report,
        every_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._database = database
        self._blobs = blobs
        self._folder = folder
        self._stream = stream
        self._place = indexes.folder_of(stream.job_id, stream.attempt_number, stream.assignment_id)
        self._spec = assignment.spec
        self._node_rank = assignment.node_rank
        self._report = report
        self._every_seconds = every_seconds
        self._clock = clock
        self._patterns = Patterns(self._spec.outputs.keep)
        self._bytes_max = self._spec.outputs.bytes_max
        self._due_at = clock() + every_seconds
        # Read before the job can have changed it, if this agent has started the job.
        self._memory = folder.kept_memory() or KeptMemory()
        self._kept: KeptSet | None = None
        self._lost: set[str] = set()
        """Paths of rows without contents, after a restore of the database."""
        self._copied: dict[str, tuple[SeenFile, KeptFile]] = {}
        """Copies in the store that no row names yet, by path."""
        self._locations: set[str] = set()
        """Of all such copies, also those that are not wanted any more."""
        self._waiting_since: dict[str, float] = {}
        """Files that are not still, by path."""
        self._reported: set[tuple[str, str]] = set()
        self._refused: dict[str, str] = {}
        self._failing_since: float | None = None
        self._full_since: float | None = None
        self._over = False

    def begin(self, state: streams.StreamState | None) -> None:
        """Do nothing: it has no offset."""

    def hurry(self) -> None:
        """Make the next step a round, before the job ends. From any thread."""
        self._due_at = self._clock()

    def step(self, last: bool) -> bool:
        """Make a round, if one is due. Return True if another one must follow at once."""
        if self._over or not (last or self._clock() >= self._due_at):
            return False
        try:
            agrees = self._round(last)
        except Exception as error:
            now = self._clock()
            self._failing_since = self._failing_since or now
            if not last or now - self._failing_since < PATIENCE_SECONDS:
                raise
            self._report("files_lost", f"The last files are not stored: {error}.", {})
            self._over = True
            return False
        self._failing_since = None
        if agrees and last and not self._over:
            self._await_room()
        if agrees:
            self._due_at = self._clock() + self._every_seconds
            self._over = self._over or last
        return not agrees

    def _await_room(self) -> None:
        """Raise, so that the last round is repeated, while files may still get room.

        Their folder is deleted after it.
        """
        if _NO_ROOM in self._refused.values():
            now = self._clock()
            self._full_since = self._full_since or now
            if now - self._full_since < ROOM_SECONDS:
                raise OSError(errno.ENOSPC, _NO_ROOM)

    def _round(self, last: bool) -> bool:
        """Store what is new. Return False if others have changed the rows meanwhile."""
        began = self._clock()
        memory = self._memory
        found = scan(self._folder.files, self._spec)
        names = self._selected(found, memory)
        self._refused = dict(found.unread)
        if self._kept is None:
            if not names and not memory.sent:
                self._report_refused()
                return True
            self._kept = self._read()
        kept = self._kept
        gone = self._gone(found)
        new = {path: seen for path, seen in names.items() if self._is_new(path, seen)}
        put = dict(self._stored(new, gone, last))
        gone |= _in_the_way(put, kept.files)
        self._blobs.sync({file.location for _, file in put.values()})
        changes = Round(
            kept.revision,
            [file for _, file in put.values()],
            sorted(gone),
            complete=last,
            age_seconds=self._clock() - began,
        )
        with self._database.jobs() as session:
            stored = kept_files.publish(
                session, self._stream.assignment_id, self._stream.token, changes
            )
        if stored is RoundResult.OTHER_REVISION:
            self._copied.clear()  # They may share contents with rows that are gone.
            self._kept = self._read()
            return False
        self._over = stored is RoundResult.REFUSED
        if stored is RoundResult.YES:
            self._take_over(changes, put)
        self._report_refused()
        return True

    def _read(self) -> KeptSet:
        with self._database.read_jobs() as session:
            found = kept_files.read(session, self._stream.job_id, self._node_rank)
        if found.files:
            stored = set(self._blobs.find(f"{FILES}/{self._stream.job_id}"))
            # A store that is not mounted looks empty.
            self._lost = {
                path for path, file in found.files.items() if stored and file.location not in stored
            }
            # Copies of an agent before this one, which died, or of before a restore.
            mine = {key for key in stored if key.startswith(f"{self._place}/")}
            self._locations |= mine - {f"{self._place}/{indexes.NAME}"}
        return found

    def _selected(self, found: Scan, memory: KeptMemory) -> dict[str, SeenFile]:
        """Return the files that are neither unchanged code nor left out by the spec."""
        changed = {
            path: seen for path, seen in found.names.items() if memory.code.get(path) != seen.stamp
        }
        selected = self._patterns.select(changed)
        return {path: seen for path, seen in changed.items() if path in selected}

    def _gone(self, found: Scan) -> set[str]:
        """Return the paths of rows whose files were there and are no longer."""
        assert self._kept is not None, "the rows are read first"
        sent = self._memory.sent
        if not found.is_whole:
            return set()
        return {
            path
            for path in self._kept.files
            if (path in sent or path in self._lost)
            and path not in found.names
            and not _is_below(path, found)
        }

    def _is_new(self, path: str, seen: SeenFile) -> bool:
        assert self._kept is not None, "the rows are read first"
        if seen.refused:
            self._refused[path] = seen.refused
            return False
        row, sent = self._kept.files.get(path), self._memory.sent.get(path)
        same = row is not None and sent == (seen.stamp, row.sha256)
        return not same or path in self._lost

    def _stored(
        self, new: dict[str, SeenFile], gone: set[str], last: bool
    ) -> Iterator[tuple[str, tuple[SeenFile, KeptFile]]]:
        """Copy files into the store, in the order in which they were changed."""
        assert self._kept is not None, "the rows are read first"
        rows = {path: file for path, file in self._kept.files.items() if path not in gone}
        count = self._kept.other_files + len(rows)
        total = self._kept.other_bytes + sum(file.bytes for file in rows.values())
        known = {
            (file.sha256, file.bytes): file.location
            for path, file in rows.items()
            if path not in self._lost
        }
        is_held = False
        for path, seen in sorted(new.items(), key=lambda item: (item[1].changed_ns, item[0])):
            is_overdue = last or self._is_overdue(path, seen)
            is_held = is_held or not _is_still(seen)
            if is_held and not is_overdue:
                self._waiting_since.setdefault(path, self._clock())
                continue
            is_new, former = path not in rows, rows[path].bytes if path in rows else 0
            is_full = is_new and count >= limits.KEPT_FILES_MAX
            if why := self._refusal(is_full, seen.bytes, total - former):
                self._refused[path] = why
                continue
            file = self._copy(path, seen, known, is_still=last or _is_still(seen))
            if file is None:
                is_held = True
                continue
            count += is_new
            total += file.bytes - former
            known[file.sha256, file.bytes] = file.location
            yield path, (seen, file)

    def _refusal(self, is_full: bool, size: int, others: int) -> str | None:
        """Return why a file is not stored, from its bytes and those of the other files."""
        if is_full:
            return f"beyond {limits.KEPT_FILES_MAX:,} files"
        if others + size > self._bytes_max:
            return f"{in_words(size)}, beyond outputs.max_gb"
        if not self._blobs.has_room(size):
            return _NO_ROOM
        return None

    def _is_overdue(self, path: str, seen: SeenFile) -> bool:
        since = self._waiting_since.get(path)
        wait = min(UNSENT_SECONDS, seen.bytes / RESTLESS_BYTES_PER_SECOND)
        return since is not None and self._clock() - since >= wait

    def _copy(
        self, path: str, seen: SeenFile, known: dict[tuple[str, int], str], *, is_still: bool
    ) -> KeptFile | None:
        """Copy one file; None if it changes meanwhile, is gone, or is refused.

        Of one that is not still, the first bytes are kept if they can be read twice: two changes
        may have the same time.
        """
        before, done = self._copied.get(path, (None, None))
        if before == seen:
            return done
        location = f"{self._place}/{secrets.token_hex(8)}"
        files = self._folder.files
        self._locations.add(location)
        try:
            size, sha256 = self._blobs.put_copy(
                files, seen.source, location, most=seen.bytes, cut=not is_still
            )
            after = files.status(seen.source)
            same = after is not None and seen.stamp == (
                after.st_size,
                after.st_mtime_ns,
                after.st_ctime_ns,
                after.st_ino,
            )
            is_whole = same if is_still else files.digest(seen.source, most=size) == sha256
        except (FileNotFoundError, NotADirectoryError):
            return None
        except UnsafeFileError as error:
            if error.why == "unreadable":
                self._refused[path] = "not readable"
            return None
        if not is_whole:
            return None
        modified_at = min(max(seen.stamp[1] / 1e9, 0.0), _LATEST_SECONDS)
        file = KeptFile(
            path,
            sha256,
            size,
            modified_at,
            seen.executable,
            self._stream.attempt_number,
            known.get((sha256, size), location),
        )
        self._copied[path] = seen, file
        return file

    def _take_over(self, changes: Round, put: dict[str, tuple[SeenFile, KeptFile]]) -> None:
        """Remember a round that is stored, and delete what no row names any more."""
        assert self._kept is not None, "the rows are read first"
        before, gone = self._kept.files, set(changes.gone)
        after = {path: file for path, file in before.items() if path not in gone}
        after |= {path: file for path, (_, file) in put.items()}
        self._kept = self._kept._replace(revision=changes.next_revision, files=after)
        self._lost -= put.keys() | gone
        memory = self._memory
        sent = {path: each for path, each in memory.sent.items() if path in after}
        sent |= {path: (seen.stamp, file.sha256) for path, (seen, file) in put.items()}
        self._memory = KeptMemory(code=memory.code, sent=sent)
        for path in put:
            self._waiting_since.pop(path, None)
        if put or gone:
            indexes.write(self._blobs, self._place, self._node_rank, self._kept)
        unnamed = self._locations | {file.location for file in before.values()}
        unnamed -= {file.location for file in after.values()}
        self._copied.clear()
        try:
            self._blobs.delete_files(sorted(unnamed))
            self._locations.clear()
            if put or changes.gone:
                self._folder.write_kept_memory(self._memory)
        except Exception as error:  # noqa: BLE001 - a remote store raises its library's exceptions
            # They take space, and a new agent reads more files than it must.
            log.warning(
                "a round is stored and not tidied up",
                assignment=self._stream.assignment_id,
                error=repr(error),
            )

    def _report_refused(self) -> None:
        """Add an event with the files that are not kept, once for each reason of a file."""
        new = sorted(set(self._refused.items()) - self._reported)
        if not new:
            return
        self._reported.update(new)
        named = [f"{readable(path)} ({why})" for path, why in new[:NAMED_MAX]]
        more = f" and {len(new) - NAMED_MAX:,} more" if len(new) > NAMED_MAX else ""
        noun = "1 name is" if len(new) == 1 else f"{len(new):,} names are"
        self._report(
            "files_skipped",
            f"{noun} not kept: {', '.join(named)}{more}.",
            {"files": {readable(path): why for path, why in new[:NAMED_MAX]}},
        )


def _is_still(seen: SeenFile) -> bool:
    return time.time_ns() - seen.changed_ns >= STILL_SECONDS * 1e9


def _in_the_way(put: Iterable[str], rows: Iterable[str]) -> set[str]:
    """Return the rows that no folder can have beside the stored files.

    Without ``outputs.restore`` an attempt may write a folder where another has a file.
    """
    put = set(put)
    folders = {str(above) for path in put for above in PurePosixPath(path).parents}
    return {
        path
        for path in rows
        if path in folders or any(str(above) in put for above in PurePosixPath(path).parents)
    }


def _is_below(path: str, found: Scan) -> bool:
    """Return whether a path lies in a folder that was not read."""
    return any(str(folder) in found.unread for folder in PurePosixPath(path).parents)
