"""Upload of the scalars in a script's TensorBoard event files, each exactly once.

A script receives a folder, ``$LOCKSTEP_TENSORBOARD``. The content of every event file below it is
a source (``worker.upload.files.event_sources``) with its own offset in the database, which moves
over whole records, with their points, in one transaction (``worker.upload.file_uploader``). Growing
files, partial records and restarted agents need no other handling.

The subfolder of a file is its *run*, as in TensorBoard, and precedes the tag: ``val/loss``. A file
with wrong checksums is read no further and reported once in the job's events; the others continue.

Not here: the format (``domain.training.event_files``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from lockstep.domain import limits
from lockstep.domain.life import attempt
from lockstep.domain.training import event_files, metrics
from lockstep.storage.db.database import Database
from lockstep.storage.series import streams
from lockstep.system.untrusted import Untrusted
from lockstep.worker.folders import Folder
from lockstep.worker.upload.decimation import Decimator
from lockstep.worker.upload.file_uploader import Chunk
from lockstep.worker.upload.files.event_sources import HEAD_BYTES, EventSources
from lockstep.worker.upload.metric_warnings import Repeats
from lockstep.worker.upload.points import PointsUploader
from lockstep.worker.upload.stream import Stream

SOURCE: Final = "tensorboard:"
Offsets = dict[str, int]
"""Bytes that are stored of each source, -1 - bytes of one that is damaged there; nothing of one
that was not begun."""

READ_BYTES: Final = 256 * 1024
SEARCH_SECONDS: Final = 1.0
"""Interval of the search for new files."""
ENTRIES_MAX: Final = 10_000
"""Limit of files and folders in a search: a script may keep its data beside its event files."""
PATH_CHARS_MAX: Final = 400
_STEPS: Final = range(2**62)
_TIME_MAX: Final = 1e11


class _Piece(NamedTuple):
    """Points read from one file."""

    records: list[metrics.StepValues]
    end: int
    damage: str = ""
    at_end: bool = False


class EventFilesUploader(PointsUploader[Offsets, metrics.StepValues]):
    """``tensorboard/**/*tfevents*`` of one attempt."""

    what = "scalars of event files"

    def __init__(
        self,
        database: Database,
        folder: Folder,
        stream: Stream,
        warn: Callable[[str], None],
        *,
        repeats: Repeats | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__(database, folder, stream, warn, repeats=repeats)
        self._decimator = Decimator(warn, clock=clock)
        self._clock = clock
        self._search_at = -math.inf
        self._sources = EventSources(folder)
        self._files: list[str] = []
        self._turn = 0
        self._read_since_pause: set[str] = set()
        self._damaged: dict[str, str] = {}
        self._warned: set[str] = set()
        self._read_bytes = self._scalar_bytes = 0
        self.last_step: int | None = None
        """The largest step that was read."""

    def _offset_of(self, state: streams.StreamState) -> Offsets:
        return {
            source: offset for source, offset in state.offsets.items() if source.startswith(SOURCE)
        }

    def _is_behind(self, offsets: Offsets, stored: Offsets) -> bool:
        return any(
            _bytes_of(offsets.get(source, 0)) < _bytes_of(at) for source, at in stored.items()
        )

    def _read(self, offsets: Offsets, last: bool) -> Chunk[Offsets, metrics.StepValues] | None:
        self._find_files(offsets, last=last)
        for turn in range(len(self._files)):
            # Each file in its turn: one that grows without end keeps none of the others waiting.
            name = self._files[(self._turn + turn) % len(self._files)]
            source = SOURCE + self._sources.of(name)
            at = offsets.get(source, 0)
            piece = self._piece(name, at) if at >= 0 else None
            if piece is None:
                continue
            self._turn += turn + 1
            if piece.end > at:
                more = self._more(name, piece)
                return Chunk(offsets, {**offsets, source: piece.end}, piece.records, more)
            self._damaged[source] = f"{name} is damaged at byte {at}: {piece.damage}"
            return Chunk(offsets, {**offsets, source: -1 - at}, [])
        self._caught_up()
        if last:
            self._decimator.ended()
        return None

    def _more(self, name: str, piece: _Piece) -> bool:
        """Return whether this file or another may have more: one that grows has had its turn."""
        again = name in self._read_since_pause or len(self._files) == 1
        self._read_since_pause.add(name)
        if piece.at_end and again:
            self._caught_up()
            return False
        return True

    def _caught_up(self) -> None:
        self._decimator.caught_up()
        self._read_since_pause.clear()

    def _find_files(self, offsets: Offsets, *, last: bool) -> None:
        """Find new files, and note how fast all of them grow."""
        now = self._clock()
        if last or now >= self._search_at:
            self._search_at = now + SEARCH_SECONDS
            found = sorted(_event_files(self._folder.files))
            names = [name for name in found if len(name) <= PATH_CHARS_MAX and name.isprintable()]
            if len(names) < len(found):
                self._warn_once(
                    "path",
                    f"event files whose path has more than {PATH_CHARS_MAX} characters are not "
                    f"read",
                )
            self._name_rewritten(self._sources.find(names))
            # Files that were started before the others first: the reads of a file must not depend
            # on its neighbours.
            names.sort(key=lambda name: SOURCE + self._sources.of(name) not in offsets)
            if len(names) > limits.TENSORBOARD_FILES_MAX:
                more = len(names) - limits.TENSORBOARD_FILES_MAX
                self._warn_once(
                    "files",
                    f"{limits.TENSORBOARD_FILES_MAX} event files of a job are read, the limit; at "
                    f"least {more} are not",
                )
            self._files = names[: limits.TENSORBOARD_FILES_MAX]
        waiting = sum(
            max(0, self._folder.files.size(_below(name)) - at)
            for name in self._files
            if (at := offsets.get(SOURCE + self._sources.of(name), 0)) >= 0
        )
        # Images and histograms are no points: the scalars' fraction of the backlog is taken from
        # the data already read.
        share = self._scalar_bytes / self._read_bytes if self._read_bytes else 1.0
        self._decimator.note_size(round(self._scalar_bytes + share * waiting))

    def _name_rewritten(self, names: list[str]) -> None:
        for name in names:
            if self._folder.is_first_report("events rewritten"):
                self._warn(
                    f"{name} was rewritten after scalars of it were stored, and is read from its "
                    "beginning; write each run into a file of its own"
                )

    def _piece(self, name: str, at: int) -> _Piece | None:
        """Return the next piece of a file; None while there is no whole record."""
        files, path = self._folder.files, _below(name)
        data = self._bytes_at(name, at)
        if not data and files.is_file(path) and (size := files.size(path)) < at:
            return _Piece([], at, f"it was rewritten, and has {size} bytes now")
        found = event_files.split(data)
        if found.beyond is not None and found.end == 0:
            end = at + found.beyond
            return _Piece([], end) if files.size(path) >= end else None
        scalars: list[event_files.Scalar] = []
        end, damage = at, found.damage
        for payload in found.payloads:
            try:
                scalars += (found_scalars := event_files.scalars(payload))
            except event_files.MalformedEventsError as error:
                damage = str(error)
                break
            size = event_files.HEADER_BYTES + len(payload) + event_files.FOOTER_BYTES
            end += size
            self._scalar_bytes += size if found_scalars else 0
        if end == at and not damage:
            return None
        self._read_bytes += end - at
        self._decimator.measured(end - at, len(scalars))
        at_end = len(data) < READ_BYTES and not damage
        return _Piece(
            self._records(PurePosixPath(name).parent.as_posix(), scalars, at_end=at_end),
            end,
            damage,
            at_end,
        )

    def _records(
        self, run: str, scalars: Sequence[event_files.Scalar], *, at_end: bool
    ) -> list[metrics.StepValues]:
        """Return the points to store, by series name."""
        prefix = "" if run == "." else f"{run}/"
        records = []
        for scalar in self._kept(scalars, at_end=at_end):
            name = prefix + scalar.tag
            if not metrics.NAME.fullmatch(name) or name.startswith(metrics.SYSTEM):
                self._warn_once(
                    "name",
                    "scalars of event files are dropped if their name is not a valid metric "
                    f"name, such as {name[:200]!r}: expected at most "
                    f"{limits.METRIC_NAME_CHARS_MAX} letters, digits, '_', '.', '/', ' ' and '-', "
                    f"without the prefix {metrics.SYSTEM}",
                )
                continue
            if scalar.step not in _STEPS or not 0 <= scalar.time < _TIME_MAX:
                self._warn_once(
                    "step",
                    f"scalars of event files are dropped, such as {name!r} at step {scalar.step}",
                )
                continue
            records.append(metrics.StepValues(scalar.step, scalar.time, {name: scalar.value}))
            self.last_step = max(scalar.step, self.last_step or 0)
        return records

    def _kept(
        self, scalars: Sequence[event_files.Scalar], *, at_end: bool
    ) -> Iterator[event_files.Scalar]:
        """As ``Decimator.kept``: every k-th step, the newest, the first non-finite value."""
        keep_every, strange = self._decimator.keep_every, False
        newest = scalars[-1].step if scalars and at_end else None
        for scalar in scalars:
            finite = math.isfinite(scalar.value)
            if scalar.step % keep_every == 0 or scalar.step == newest or not (finite or strange):
                strange = strange or not finite
                yield scalar
            else:
                self._decimator.left_out += 1

    def _append(self, batch: Chunk[Offsets, metrics.StepValues]) -> bool:
        # One file at a time has moved.
        (source,) = (
            name for name, offset in batch.after.items() if offset != batch.before.get(name, 0)
        )
        before, after = batch.before.get(source, 0), batch.after[source]
        return self._append_points(
            batch.records,
            before=before,
            after=after,
            source=source,
            file=source.removeprefix(SOURCE),
        )

    def _note_stored(self, offsets: Offsets) -> None:
        """Report a damaged file after storing that, so a later agent does not report it again."""
        for source in [source for source in self._damaged if offsets.get(source, 0) < 0]:
            self._warn(f"{self._damaged.pop(source)}; the rest of the file is not read")

    def _bytes_at(self, name: str, offset: int) -> bytes:
        """Return the next bytes of a file.

        Empty if it cannot be read, or has another content than the one that was found.
        """
        try:
            with self._folder.files.open(_below(name)) as file:
                if not self._sources.is_same(name, file.read(HEAD_BYTES)):
                    self._search_at = -math.inf
                    return b""
                file.seek(offset)
                return file.read(READ_BYTES)
        except OSError:
            return b""

    def _warn_once(self, what: str, message: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            self._warn(message)


def _bytes_of(offset: int) -> int:
    return offset if offset >= 0 else -1 - offset


def _below(name: str) -> str:
    """Return the name of an event file in the attempt's folder."""
    return f"{attempt.TENSORBOARD}/{name}"


def _event_files(files: Untrusted) -> Iterator[str]:
    """Names of regular event files. Links are not followed: they may lead anywhere."""
    for entry in files.walk(attempt.TENSORBOARD, most=ENTRIES_MAX):
        if entry.kind == "file" and "tfevents" in PurePosixPath(entry.name).name:
            yield entry.name
