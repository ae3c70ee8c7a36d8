"""Upload of metrics and log lines into the series database, each exactly once.

Stored data stays on the node up to a limit (``limits.METRIC_SPOOL_STORED_BYTES``,
``limits.LOG_STORED_BYTES``), because the database may be restored from a backup; missing data that
is no longer on the node is reported.

While the database is away the files wait: unstored data stays in the spool, up to a limit, and
``logs/shipped`` does not move, which limits the launcher's writes.

A job's flood affects only that job: its steps are decimated (``worker.upload.decimation``), batches
are small and never wait while they hold a lock, and stored data is punched out of the spool.

Not here: exactly-once delivery (``worker.upload.shipper``), samples (``worker.devices.sampling``),
event files (``worker.upload.tensorboard``), events (``worker.upload.reporting``), the end of a
stream (``worker.agent.assignment``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog
from pydantic import ValidationError

from lockstep.domain import limits
from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import LogRecord, segment_name
from lockstep.domain.training import metrics
from lockstep.domain.training.memory import in_words
from lockstep.storage.db.database import Database
from lockstep.storage.logs import logs
from lockstep.storage.series import series, streams
from lockstep.worker.agent.folders import Folder
from lockstep.worker.upload.decimation import Decimator
from lockstep.worker.upload.metric_warnings import (
    METRICS_FILE,
    LineWarnings,
    QuotaWarnings,
    Repeats,
)
from lockstep.worker.upload.rewrites import RewritableFile
from lockstep.worker.upload.shipper import (
    POISON_TRIES,
    Chunk,
    NotOpenError,
    Place,
    Shipper,
    Stream,
    is_poison,
)
from lockstep.worker.upload.tail import Line, Lines, next_segment_exists, whole_lines

__all__ = [
    "POISON_TRIES",
    "Chunk",
    "LogShipper",
    "MetricsShipper",
    "NotOpenError",
    "PointsShipper",
    "Stream",
    "is_poison",
]

log = structlog.get_logger(__name__)

PIECES_MAX = 16
RECORDS_ENOUGH = 2_000
"""While steps are left out, a batch ends at either: 4 MiB of the spool, or so many records that one
transaction stays short."""
HOLE_BYTES = 4096
"""So many zero bytes are no damaged line: a piece of the file is gone."""
LOG_BATCH_BYTES = 6 * limits.LOG_LINE_BYTES_MAX + 4096
"""Room for the longest record: a control character takes one byte of a line and six in JSON."""


class PointsShipper(Shipper[Place, metrics.StepValues]):
    """File with points. Points beyond the job's limits are reported once."""

    def __init__(
        self,
        database: Database,
        folder: Folder,
        stream: Stream,
        warn: Callable[[str], None],
        *,
        repeats: Repeats | None = None,
    ):
        super().__init__(database, folder, stream, warn)
        self._quota_warnings = QuotaWarnings(warn)
        self._repeats = repeats

    def _append_points(
        self,
        records: Sequence[metrics.StepValues],
        *,
        before: int,
        after: int,
        source: str | None = None,
        file: str = METRICS_FILE,
    ) -> bool:
        """See ``series.append``. ``file`` names the records' file for warnings."""
        noted: list[series.OverLimit] = []
        try:
            with self._database.series() as session:
                accepted = series.append(
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
            # Also where the answer of the commit was lost; if there was none, the same will be left
            # out again.
            self._quota_warnings.tell(noted)
        if accepted and self._repeats is not None:
            self._repeats.note(records, file)
        return accepted

    def _set_back(self) -> None:
        if self._repeats is not None:
            self._repeats.forget()


class MetricsShipper(PointsShipper[int]):
    """``spool/metrics.jsonl``: offsets are bytes.

    A bad line is named in one warning, and does not stop the rest.
    """

    what = "metrics"

    def __init__(
        self,
        database: Database,
        folder: Folder,
        stream: Stream,
        warn: Callable[[str], None],
        *,
        repeats: Repeats | None = None,
    ):
        super().__init__(database, folder, stream, warn, repeats=repeats)
        self.last_step: int | None = None
        """Step of the newest record that was read; a line without a step takes the next one."""
        self._decimator = Decimator(warn)
        self._line_warnings = LineWarnings(warn)
        self._not_theirs = False
        self._told = False
        self._file = RewritableFile(folder, attempt.METRICS, self._was_rewritten)
        self._hollowed_bytes = 0
        self.stored_bytes = 0
        """Stored bytes of the file's present content, as far as this agent has read."""

    def step(self, last: bool) -> bool:
        """Ship one batch, after a look at how large the spool has become.

        See ``worker.upload.upload_loop``.
        """
        path = self._folder.file(attempt.METRICS)
        if path.is_file():
            self._decimator.look(self._file.base + path.stat().st_size)
            self._free_disk()
        return super().step(last)

    def _free_disk(self) -> None:
        """Remove the middle of the unstored data if it exceeds its limit.

        The database was away for long, or the node does not keep up with the job.
        """
        freed = self._file.spool.shrink_to(limits.METRIC_SPOOL_BYTES_MAX)
        if freed and not self._hollowed_bytes:
            self._warn(
                f"metrics limited: more than {in_words(limits.METRIC_SPOOL_BYTES_MAX)} wait to be "
                "stored; the oldest and the newest are kept, the others are dropped"
            )
        self._hollowed_bytes += freed

    def _shipped(self, place: int) -> None:
        self._file.stored(place, kept_bytes=limits.METRIC_SPOOL_STORED_BYTES)
        self.stored_bytes = place - self._file.base

    def _is_behind(self, place: int, stored: int) -> bool:
        return place < stored

    def _place_of(self, state: streams.StreamState) -> int:
        self.last_step = state.last_step
        return state.metrics_offset

    def _read(self, place: int, last: bool) -> Chunk[int, metrics.StepValues] | None:
        records: list[metrics.StepValues] = []
        end = place
        # Of a flood little is kept, so that more of it is read for one transaction.
        for _piece in range(PIECES_MAX):
            found = self._file.read(end, last=last)
            if found.offset == end:
                break
            if found.gone:
                self._missing(found.gone)
            if found.too_long is not None:
                self._bad(Line(found.too_long, found.too_long, b""), "it is longer than 256 KiB")
            if found.hole is not None and not self._hollowed_bytes:
                self._passed_over(found.hole, found.offset - self._file.base)
            records += self._records(found)
            end = found.offset
            if self._decimator.keep_every == 1 or len(records) >= RECORDS_ENOUGH:
                break
        if end == place:
            self._decimator.caught_up()
            if last:
                self._tell_what_is_missing()
            return None
        return Chunk(place, end, records)

    def _passed_over(self, start: int, end: int) -> None:
        """Name zero bytes in the spool: a piece that is gone, or a damaged line."""
        if end - start >= HOLE_BYTES:
            self._missing(end - start)
        elif start >= self._file.spool.freed:
            self._bad(Line(start, end, b""), "it contains NUL bytes")

    def _missing(self, size: int) -> None:
        self._warn(f"{in_words(size)} of the metrics are missing: they are no longer on the node")

    def _was_rewritten(self) -> None:
        if self._folder.is_first_report("rewritten"):
            self._warn(
                f"{METRICS_FILE} was rewritten after lines of it were stored, and is read from its "
                "beginning; lines that were overwritten before they were read are missing. Open "
                'the file with mode "a" (append)'
            )

    def _records(self, found: Lines) -> list[metrics.StepValues]:
        """Return the records of a piece's lines that are to be stored."""
        decimator = self._decimator
        read: list[Line] = found.lines
        if decimator.keep_every == 1:
            records = [record for line in read if (record := self._decode(line)) is not None]
        else:
            kept, last_step = decimator.kept(read, self.last_step, newest=found.at_end)
            read, records = [line for line, _ in kept], []
            for line, step in kept:
                self.last_step = step - 1
                if (record := self._decode(line)) is not None:
                    records.append(record)
            self.last_step = last_step
        decimator.measured(
            sum(line.end - line.offset for line in read),
            sum(len(record.values) for record in records),
        )
        return records

    def _decode(self, line: Line) -> metrics.StepValues | None:
        try:
            record = metrics.decode(
                line.text, now=time.time(), default_step=(self.last_step or 0) + 1
            )
        except ValueError as error:
            self._bad(line, str(error))
            return None
        self.last_step = record.step
        if record.refused:
            self._line_warnings.refused(record.refused)
        if not_theirs := [name for name in record.values if name.startswith(metrics.SYSTEM)]:
            for name in not_theirs:
                del record.values[name]
            if not self._not_theirs:
                self._not_theirs = True
                self._warn(
                    f"numbers named {metrics.SYSTEM}… are dropped: this prefix is reserved for "
                    f"measurements of the node"
                )
        return record if record.values else None

    def _bad(self, line: Line, why: str) -> None:
        self._line_warnings.bad(line, self._number, why)

    def _tell_what_is_missing(self) -> None:
        if self._told:
            return
        path = self._folder.file(attempt.METRICS)
        self._file.close()
        self._told = True
        self._decimator.ended()
        if path.exists() and not path.is_file():
            self._warn(f"{METRICS_FILE} is not a regular file; expected a file of JSON lines")
        self._line_warnings.ended()

    def _number(self, offset: int) -> str:
        """Return the number of the line that begins at ``offset``, counted from 1."""
        if self._file.spool.freed:
            return f"the line at byte {offset}"
        newlines = 0
        with self._folder.file(attempt.METRICS).open("rb") as file:
            while offset > 0 and (block := file.read(min(offset, 1 << 20))):
                newlines += block.count(b"\n")
                offset -= len(block)
        return f"line {newlines + 1}"

    def _append(self, batch: Chunk[int, metrics.StepValues]) -> bool:
        return self._append_points(batch.records, before=batch.before, after=batch.after)


class LogShipper(Shipper[logs.LogOffset, LogRecord]):
    """``logs/NNNNNN.jsonl``: a place is a segment and bytes into it.

    Of the segments that are wholly stored the newest are kept, up to a limit, and the others
    deleted.
    """

    what = "log lines"

    def __init__(
        self, database: Database, folder: Folder, stream: Stream, warn: Callable[[str], None]
    ):
        super().__init__(database, folder, stream, warn)
        self._kept_from = -1
        """Segment that was being written when stored segments were last checked."""

    def _place_of(self, state: streams.StreamState) -> logs.LogOffset:
        return logs.LogOffset(state.log_segment, state.log_offset)

    def _is_behind(self, place: logs.LogOffset, stored: logs.LogOffset) -> bool:
        return place < stored

    def _read(self, place: logs.LogOffset, last: bool) -> Chunk[logs.LogOffset, LogRecord] | None:
        folder = self._folder.file(attempt.LOGS)
        complete = next_segment_exists(folder, place.segment)
        path = folder / segment_name(place.segment)
        if not path.exists() and (
            following := [number for number in _segments(folder) if number > place.segment]
        ):
            return self._without(place, min(following))
        found = whole_lines(path, place.offset, last=last or complete, batch_bytes=LOG_BATCH_BYTES)
        if found.offset == place.offset:
            return Chunk(place, logs.LogOffset(place.segment + 1, 0), []) if complete else None
        records = [record for line in found.lines if (record := _log_record(line)) is not None]
        return Chunk(place, logs.LogOffset(place.segment, found.offset), records)

    def _append(self, batch: Chunk[logs.LogOffset, LogRecord]) -> bool:
        with self._database.series() as session:
            return logs.append(
                session,
                assignment_id=self._stream.assignment_id,
                token=self._stream.token,
                place_before=batch.before,
                place_after=batch.after,
                records=batch.records,
            )

    def _without(self, place: logs.LogOffset, following: int) -> Chunk[logs.LogOffset, LogRecord]:
        """Go on behind segments that were deleted as stored, before the database was set back."""
        size = in_words((following - place.segment) * limits.LOG_SEGMENT_BYTES - place.offset)
        self._warn(f"about {size} of the log are missing: they are no longer on the node")
        note = (
            f"… about {size} missing: the database was restored, and they were no longer on the "
            f"node …"
        )
        record = LogRecord(time=time.time(), rank=-1, stream="launcher", text=note)
        return Chunk(place, logs.LogOffset(following, 0), [record])

    def _shipped(self, place: logs.LogOffset) -> None:
        try:
            if place.segment != self._kept_from:
                self._delete_stored(place.segment, limits.LOG_STORED_BYTES)
                self._kept_from = place.segment
            self._folder.write_shipped(place.segment, place.offset)
        except OSError:
            # On a full disk the file can be written only once they are gone.
            self._delete_stored(place.segment, 0)
            self._folder.write_shipped(place.segment, place.offset)

    def _delete_stored(self, segment: int, kept_bytes: int) -> None:
        folder = self._folder.file(attempt.LOGS)
        for number in sorted(
            (number for number in _segments(folder) if number < segment), reverse=True
        ):
            path = folder / segment_name(number)
            kept_bytes -= path.stat().st_size
            if kept_bytes <= 0:
                path.unlink(missing_ok=True)


def _segments(folder: Path) -> list[int]:
    return [int(path.stem) for path in folder.glob("[0-9]*.jsonl") if path.stem.isdecimal()]


def _log_record(line: Line) -> LogRecord | None:
    """The record in a line; None for one that a killed launcher left half written."""
    try:
        return LogRecord.model_validate_json(line.text)
    except ValidationError:
        log.warning("a log line is damaged and dropped", offset=line.offset)
        return None
