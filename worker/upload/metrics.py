"""Upload of a job's metrics file into the series database, each line exactly once.

Stored data stays on the node up to a limit (``limits.METRIC_SPOOL_STORED_BYTES``), because the
database may be restored from a backup; missing data that is no longer on the node is reported.
While the database is away unstored data stays in the spool, up to a limit.

A job's flood affects only that job: its steps are decimated (``worker.upload.decimation``), batches
are small and never wait while they hold a lock, and stored data is punched out of the spool.

Not here: exactly-once delivery (``worker.upload.file_uploader``), samples
(``worker.devices.sampling``), event files (``worker.upload.tensorboard``), the end of a stream
(``worker.agent.assignment``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from lockstep.domain import limits
from lockstep.domain.life import attempt
from lockstep.domain.training import metrics
from lockstep.domain.training.definitions import Definitions, SeriesDefinition, definitions_in
from lockstep.domain.training.memory import in_words
from lockstep.storage.db.database import Database
from lockstep.storage.series import streams
from lockstep.worker.folders import Folder
from lockstep.worker.upload.decimation import Decimator
from lockstep.worker.upload.file_uploader import Chunk
from lockstep.worker.upload.files.lines import Line, Lines
from lockstep.worker.upload.files.rewritable_file import RewritableFile
from lockstep.worker.upload.metric_warnings import METRICS_FILE, LineWarnings, Repeats
from lockstep.worker.upload.points import PointsUploader
from lockstep.worker.upload.stream import Stream

Record = metrics.StepValues | Definitions
PIECES_MAX: Final = 16
RECORDS_ENOUGH: Final = 2_000
"""While steps are left out, a batch ends at either: 4 MiB of the spool, or so many records that one
transaction stays short."""
HOLE_BYTES: Final = 4096
"""So many zero bytes are no damaged line: a piece of the file is gone."""

TOO_LONG: Final = f"it is longer than {in_words(limits.METRIC_LINE_BYTES_MAX)}"


class MetricsUploader(PointsUploader[int, Record]):
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
        self._definitions_left = limits.SERIES_DEFINITIONS_PER_ATTEMPT_MAX
        self._not_theirs = False
        self._reported = False
        self._file = RewritableFile(folder, attempt.METRICS, self._was_rewritten)
        self._hollowed_bytes = 0
        self.stored_bytes = 0
        """Stored bytes of the file's present content, as far as this agent has read."""

    def step(self, last: bool) -> bool:
        """Note the size of the spool, and upload one batch.

        See ``worker.upload.upload_loop``.
        """
        files = self._folder.files
        if files.is_file(attempt.METRICS):
            self._decimator.note_size(self._file.base + files.size(attempt.METRICS))
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

    def _note_stored(self, offset: int) -> None:
        self._file.stored(offset, kept_bytes=limits.METRIC_SPOOL_STORED_BYTES)
        self.stored_bytes = offset - self._file.base

    def _is_behind(self, offset: int, stored: int) -> bool:
        return offset < stored

    def _offset_of(self, state: streams.StreamState) -> int:
        self.last_step = state.last_step
        return state.metrics_offset

    def _read(self, offset: int, last: bool) -> Chunk[int, Record] | None:
        records: list[Record] = []
        end = offset
        # Of a flood little is kept, so that more of it is read for one transaction.
        for _piece in range(PIECES_MAX):
            found = self._file.read(end, last=last)
            if found.offset == end:
                break
            if found.gone:
                self._missing(found.gone)
            if found.too_long is not None:
                self._bad(Line(found.too_long, found.too_long, b""), TOO_LONG)
            if found.hole is not None and not self._hollowed_bytes:
                self._passed_over(found.hole, found.offset - self._file.base)
            records += self._records(found)
            end = found.offset
            if self._decimator.keep_every == 1 or len(records) >= RECORDS_ENOUGH:
                break
        if end == offset or found.at_end:
            self._decimator.caught_up()
        if end == offset:
            if last:
                self._report_missing()
            return None
        return Chunk(offset, end, records, more=not found.at_end)

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

    def _records(self, found: Lines) -> list[Record]:
        """Return the records of a piece's lines that are to be stored."""
        decimator = self._decimator
        read: list[Line] = found.lines
        if decimator.keep_every == 1:
            records = [record for line in read if (record := self._decode(line)) is not None]
        else:
            kept, last_step = decimator.kept(read, self.last_step, newest=found.at_end)
            read, records = [line for line, _ in kept], []
            for line, step in kept:
                if step is not None:
                    self.last_step = step - 1
                if (record := self._decode(line)) is not None:
                    records.append(record)
            self.last_step = last_step
        decimator.measured(
            sum(line.end - line.offset for line in read),
            sum(
                len(record.defined if isinstance(record, Definitions) else record.values)
                for record in records
            ),
        )
        return records

    def _decode(self, line: Line) -> Record | None:
        if len(line.text) > limits.METRIC_LINE_BYTES_MAX:
            self._bad(line, TOO_LONG)
            return None
        try:
            definitions = definitions_in(line.text)
            if definitions is not None:
                self._line_warnings.definitions_refused(definitions.refused)
                return definitions if definitions.defined else None
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

    def _report_missing(self) -> None:
        if self._reported:
            return
        files = self._folder.files
        self._file.close()
        self._reported = True
        self._decimator.ended()
        if files.exists(attempt.METRICS) and not files.is_file(attempt.METRICS):
            self._warn(f"{METRICS_FILE} is not a regular file; expected a file of JSON lines")
        self._line_warnings.ended()

    def _number(self, offset: int) -> str:
        """Return the number of the line that begins at ``offset``, counted from 1."""
        if self._file.spool.freed:
            return f"the line at byte {offset}"
        newlines = 0
        with self._folder.files.open(attempt.METRICS) as file:
            while offset > 0 and (block := file.read(min(offset, 1 << 20))):
                newlines += block.count(b"\n")
                offset -= len(block)
        return f"line {newlines + 1}"

    def _append(self, batch: Chunk[int, Record]) -> bool:
        defined = self._defined(batch.records)
        accepted = self._append_points(
            [record for record in batch.records if isinstance(record, metrics.StepValues)],
            before=batch.before,
            after=batch.after,
            defined=defined,
        )
        self._definitions_left -= len(defined) if accepted else 0
        return accepted

    def _defined(self, records: list[Record]) -> dict[str, SeriesDefinition]:
        """Return the last definition of each name, as many as may still be stored."""
        found: dict[str, SeriesDefinition] = {}
        for record in records:
            if isinstance(record, Definitions):
                found.update(record.defined)
        if len(found) <= self._definitions_left:
            return found
        self._line_warnings.too_many_definitions()
        return dict(list(found.items())[: self._definitions_left])
