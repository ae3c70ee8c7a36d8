"""Bring metrics and log lines from the attempt's folder into the series database, each exactly once.

How exactly once comes about: the place up to which a file is stored is kept in the attempt's stream row and moves in the
transaction that stores what lies before it. An agent that dies between reading and committing reads the same lines
again; one that dies after committing finds the place behind them. ``append`` refuses a place that is not the stored one,
a stale token and a sealed stream, so neither two agents nor an old attempt can add anything.

While the database is away the files wait: what is not stored of the spool stays in it, up to a limit, and ``logs/shipped``
stands still, by which the launcher knows how much more it may write.

One job's flood costs that job alone: its steps are thinned (``worker.thinning``), a batch is small and never waits with a lock
in its hands, and what is stored is punched out of the spool.

Not here: what the agent measures (``worker.sampling``), event files (``worker.tensorboard``), events (``worker.reporting``), when a stream ends (``worker.assignment``).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import structlog
from pydantic import ValidationError
from sqlalchemy.exc import IntegrityError

from domain import attempt, limits, metrics
from domain.attempt import LogRecord, segment_name
from domain.errors import ErrorCode, LockstepError
from domain.memory import in_words
from storage import logs, series, streams
from storage.database import Database
from worker import holes
from worker.folders import Folder
from worker.room import Room
from worker.tail import Line, Lines, next_segment_exists, whole_lines
from worker.thinning import Thinner

log = structlog.get_logger(__name__)

Place = TypeVar("Place")
Record = TypeVar("Record")

POISON_TRIES = 5
"""A batch that the database refuses this often while it answers is dropped, with a warning: behind it wait others."""
LINE_CHARS_SHOWN = 200
REFUSED_NAMES_MAX = 5
"""Names that are warned about because their values are no metrics."""
NAME_CHARS_SHOWN = 60
PIECES_MAX = 16
RECORDS_ENOUGH = 2_000
"""While steps are left out, a batch ends at either: 4 MiB of the spool, or so many records that one transaction stays short."""
FREED_AT_ONCE_BYTES = 8 * 1024 * 1024
SPOOL_KEPT_BYTES = 1024 * 1024
"""What is stored of the spool is given back to the disk in pieces of the first size, except the last of the second."""
LOG_BATCH_BYTES = 6 * limits.LOG_LINE_BYTES_MAX + 4096
"""Room for the longest record: a control character takes one byte of a line and six in JSON."""


class Stream(NamedTuple):
    """Whose metrics and logs they are, and the token that says so."""

    assignment_id: str
    job_id: str
    attempt_number: int
    token: str


class Batch(NamedTuple, Generic[Place, Record]):
    """What comes next of a file, and the place behind it."""

    before: Place
    after: Place
    records: list[Record]


class Shipper(ABC, Generic[Place, Record]):
    """One file's way into the database."""

    def __init__(self, database: Database, folder: Folder, stream: Stream, warn: Callable[[str], None]):
        self._database = database
        self._folder = folder
        self._stream = stream
        self._warn = warn
        self._place: Place | None = None
        self._poisoned: tuple[Place, int] | None = None
        self.refused = False
        """The stream is sealed or belongs to another token: nothing of this attempt is wanted any more."""

    def begin(self, state: streams.StreamState | None) -> None:
        """Go on from where the stream is, as whoever opened it has read; without this it is read by the first step."""
        self._place = self._open_place(state)
        if self._place is not None:
            self._shipped(self._place)

    def step(self, last: bool) -> bool:
        """Ship one batch. See ``worker.pump``."""
        if self.refused:
            return False
        if self._place is None:
            self.begin(self._state())
            if self._place is None:
                return False
        batch = self._read(self._place, last)
        if batch is None:
            return False
        if self._poisoned == (batch.before, POISON_TRIES):
            self._warn(f"{len(batch.records)} records were refused by the database and are left out")
            batch = batch._replace(records=[])
        try:
            accepted = self._append(batch)
        except Exception as error:
            # Whether it was committed is not known: the place is read again.
            self._place = None
            if is_poison(error):
                tries = self._poisoned[1] if self._poisoned and self._poisoned[0] == batch.before else 0
                self._poisoned = (batch.before, tries + 1)
            raise
        if accepted:
            self._place = batch.after
            self._shipped(batch.after)
        else:
            self._place = self._open_place(self._state())
            # Refused though this is the place: the stream is sealed, or a later attempt's.
            self.refused = self.refused or self._place == batch.before
        return True

    def _state(self) -> streams.StreamState | None:
        with self._database.read_series() as session:
            return streams.state(session, self._stream.assignment_id)

    def _open_place(self, state: streams.StreamState | None) -> Place | None:
        """The file's place in the stream; None, and ``refused``, if nothing can be added any more."""
        if state is None or state.sealed:
            self.refused = True
            return None
        return self._place_of(state)

    @abstractmethod
    def _place_of(self, state: streams.StreamState) -> Place: ...

    @abstractmethod
    def _read(self, place: Place, last: bool) -> Batch[Place, Record] | None:
        """What comes after ``place``; None if nothing does."""

    @abstractmethod
    def _append(self, batch: Batch[Place, Record]) -> bool: ...

    def _shipped(self, place: Place) -> None:
        """Everything before ``place`` is stored."""


class PointsShipper(Shipper[Place, metrics.Record]):
    """A file that holds points. What a job has no room for is told once."""

    def __init__(self, database: Database, folder: Folder, stream: Stream, warn: Callable[[str], None]):
        super().__init__(database, folder, stream, warn)
        self._room = Room(warn)

    def _append_points(
        self, records: Sequence[metrics.Record], *, before: int, after: int, source: str | None = None
    ) -> bool:
        """See ``series.append``."""
        noted: list[series.LeftOut] = []
        try:
            with self._database.series() as session:
                return series.append(
                    session,
                    assignment_id=self._stream.assignment_id,
                    token=self._stream.token,
                    offset_before=before,
                    offset_after=after,
                    records=records,
                    source=source,
                    left_out=noted.append,
                )
        finally:
            # Also where the answer of the commit was lost; if there was none, the same will be left out again.
            self._room.tell(noted)


class MetricsShipper(PointsShipper[int]):
    """``spool/metrics.jsonl``: offsets are bytes. A bad line is named in one warning, and does not stop the rest."""

    def __init__(self, database: Database, folder: Folder, stream: Stream, warn: Callable[[str], None]):
        super().__init__(database, folder, stream, warn)
        self.last_step: int | None = None
        """Step of the newest record that was read; a line without a step takes the next one."""
        self._thinner = Thinner(warn)
        self._bad_lines = 0
        self._refused: dict[str, None] = {}
        """Names whose values are left out, in the order in which they came."""
        self._refused_values = 0
        self._not_theirs = False
        self._told = False
        self._freed = 0
        self._hollowed_bytes = 0
        self.stored_bytes = 0
        """Of the spool, as far as this agent knows."""

    def step(self, last: bool) -> bool:
        """Ship one batch, after a look at how large the spool has become. See ``worker.pump``."""
        path = self._folder.file(attempt.METRICS)
        if path.is_file():
            self._thinner.look(path.stat().st_size)
            self._hollow(path)
        return super().step(last)

    def _hollow(self, path: Path) -> None:
        """Take the middle out of what waits to be stored, if it is more than may wait.

        The database is away for long, or the node does not keep up with the job.
        """
        freed = holes.hollow(path, limits.METRIC_SPOOL_BYTES_MAX)
        if freed and not self._hollowed_bytes:
            self._warn(
                f"metrics limited: more than {in_words(limits.METRIC_SPOOL_BYTES_MAX)} of them wait to be stored; "
                "the oldest and the newest are kept, what lies between is left out"
            )
        self._hollowed_bytes += freed

    def _shipped(self, place: int) -> None:
        """Give the disk back what is stored, except the end, in which people and the launcher look for the last step."""
        self.stored_bytes = place
        end = place - SPOOL_KEPT_BYTES
        if end - self._freed >= FREED_AT_ONCE_BYTES:
            holes.punch(self._folder.file(attempt.METRICS), self._freed, end)
            self._freed = end

    def _place_of(self, state: streams.StreamState) -> int:
        self.last_step = state.last_step
        return state.metrics_offset

    def _read(self, place: int, last: bool) -> Batch[int, metrics.Record] | None:
        path = self._folder.file(attempt.METRICS)
        records: list[metrics.Record] = []
        end = place
        # Of a flood little is kept, so that more of it is read for one transaction.
        for _piece in range(PIECES_MAX):
            found = whole_lines(path, end, last=last)
            if found.offset == end:
                break
            if found.too_long is not None:
                self._bad(Line(found.too_long, found.offset, b""), "it is longer than 256 KiB")
            if found.hole is not None and not self._hollowed_bytes:
                self._bad(Line(found.hole, found.offset, b""), "it has zero bytes in it")
            records += self._records(found)
            end = found.offset
            if self._thinner.keep_every == 1 or len(records) >= RECORDS_ENOUGH:
                break
        if end == place:
            self._thinner.caught_up()
            if last:
                self._tell_what_is_missing(path)
            return None
        return Batch(place, end, records)

    def _records(self, found: Lines) -> list[metrics.Record]:
        """What the lines of a piece say, as far as it is stored."""
        thinner = self._thinner
        read: list[Line] = found.lines
        if thinner.keep_every == 1:
            records = [record for line in read if (record := self._decode(line)) is not None]
        else:
            kept, last_step = thinner.kept(read, self.last_step, newest=found.at_end)
            read, records = [line for line, _ in kept], []
            for line, step in kept:
                self.last_step = step - 1
                if (record := self._decode(line)) is not None:
                    records.append(record)
            self.last_step = last_step
        thinner.measured(sum(line.end - line.offset for line in read), sum(len(record.values) for record in records))
        return records

    def _decode(self, line: Line) -> metrics.Record | None:
        try:
            record = metrics.decode(line.text, now=time.time(), default_step=(self.last_step or 0) + 1)
        except ValueError as error:
            self._bad(line, str(error))
            return None
        self.last_step = record.step
        if record.refused:
            self._note_refused(record.refused)
        if not_theirs := [name for name in record.values if name.startswith(metrics.SYSTEM)]:
            for name in not_theirs:
                del record.values[name]
            if not self._not_theirs:
                self._not_theirs = True
                self._warn(f"numbers named {metrics.SYSTEM}… are left out: they are what the node measures")
        return record if record.values else None

    def _bad(self, line: Line, why: str) -> None:
        self._bad_lines += 1
        if self._bad_lines == 1:
            shown = line.text[:LINE_CHARS_SHOWN].decode(errors="replace")
            which = f"the line at byte {line.offset}" if self._freed else f"line {self._number(line.offset)}"
            self._warn(f"{which} of $LOCKSTEP_METRICS is left out: {why}; it reads {shown!r}")

    def _note_refused(self, refused: Mapping[str, str]) -> None:
        """Warn about each name once, for as many names as may be warned about."""
        self._refused_values += len(refused)
        for name, why in refused.items():
            if name in self._refused or len(self._refused) > REFUSED_NAMES_MAX:
                continue
            self._refused[name] = None
            if len(self._refused) <= REFUSED_NAMES_MAX:
                shown, reason = repr(name[:NAME_CHARS_SHOWN]), why[:LINE_CHARS_SHOWN]
                self._warn(f"values of {shown} in $LOCKSTEP_METRICS are left out: {reason}")

    def _tell_what_is_missing(self, path: Path) -> None:
        if self._told:
            return
        self._told = True
        self._thinner.ended()
        if path.exists() and not path.is_file():
            self._warn("$LOCKSTEP_METRICS names a file for JSON lines; the job has made something else there")
        if self._bad_lines > 1:
            self._warn(f"{self._bad_lines} lines of $LOCKSTEP_METRICS were left out")
        if self._refused_values > 1:
            names = ", ".join(repr(name[:NAME_CHARS_SHOWN]) for name in list(self._refused)[:REFUSED_NAMES_MAX])
            more = ", and of further names" if len(self._refused) > REFUSED_NAMES_MAX else ""
            self._warn(f"{self._refused_values} values of $LOCKSTEP_METRICS were left out: {names}{more}")

    def _number(self, offset: int) -> int:
        """Number of the line that begins at ``offset``, counted from 1."""
        newlines = 0
        with self._folder.file(attempt.METRICS).open("rb") as file:
            while offset > 0 and (block := file.read(min(offset, 1 << 20))):
                newlines += block.count(b"\n")
                offset -= len(block)
        return newlines + 1

    def _append(self, batch: Batch[int, metrics.Record]) -> bool:
        return self._append_points(batch.records, before=batch.before, after=batch.after)


class LogShipper(Shipper[logs.Place, LogRecord]):
    """``logs/NNNNNN.jsonl``: a place is a segment and bytes into it. Segments that are wholly stored are deleted."""

    def _place_of(self, state: streams.StreamState) -> logs.Place:
        return logs.Place(state.log_segment, state.log_offset)

    def _read(self, place: logs.Place, last: bool) -> Batch[logs.Place, LogRecord] | None:
        folder = self._folder.file(attempt.LOGS)
        complete = next_segment_exists(folder, place.segment)
        path = folder / segment_name(place.segment)
        found = whole_lines(path, place.offset, last=last or complete, batch_bytes=LOG_BATCH_BYTES)
        if found.offset == place.offset:
            return Batch(place, logs.Place(place.segment + 1, 0), []) if complete else None
        records = [record for line in found.lines if (record := _log_record(line)) is not None]
        return Batch(place, logs.Place(place.segment, found.offset), records)

    def _append(self, batch: Batch[logs.Place, LogRecord]) -> bool:
        with self._database.series() as session:
            return logs.append(
                session,
                assignment_id=self._stream.assignment_id,
                token=self._stream.token,
                place_before=batch.before,
                place_after=batch.after,
                records=batch.records,
            )

    def _shipped(self, place: logs.Place) -> None:
        # First, because on a full disk the file below can be written only once they are gone.
        for path in self._folder.file(attempt.LOGS).glob("[0-9]*.jsonl"):
            if path.stem.isdecimal() and int(path.stem) < place.segment:
                path.unlink(missing_ok=True)
        self._folder.write_shipped(place.segment, place.offset)


def _log_record(line: Line) -> LogRecord | None:
    """The record in a line; None for one that a killed launcher left half written."""
    try:
        return LogRecord.model_validate_json(line.text)
    except ValidationError:
        log.warning("a log line is damaged and left out", offset=line.offset)
        return None


def is_poison(error: Exception) -> bool:
    """Whether it was what we wrote that was refused; otherwise a database is away or full, which will pass."""
    if isinstance(error, LockstepError):
        return error.code is ErrorCode.INVALID
    return isinstance(error, ValueError | TypeError | LookupError | ArithmeticError | IntegrityError)
