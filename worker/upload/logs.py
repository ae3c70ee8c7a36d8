"""Upload of log lines into the series database, each exactly once.

Stored segments stay on the node up to a limit (``limits.LOG_STORED_BYTES``), because the database
may be restored from a backup; missing lines that are no longer on the node are reported. While the
database is away ``logs/uploaded`` does not move, which limits the launcher's writes.

Not here: exactly-once delivery (``worker.upload.file_uploader``), the launcher's writes
(``engine.launcher.output.segments``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import structlog
from pydantic import ValidationError

from lockstep.domain import limits
from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import LogRecord, segment_name
from lockstep.domain.training.memory import in_words
from lockstep.storage.db.database import Database
from lockstep.storage.logs import logs
from lockstep.storage.series import streams
from lockstep.worker.folders import Folder
from lockstep.worker.upload.file_uploader import Chunk, FileUploader
from lockstep.worker.upload.files.lines import Line, next_segment_exists, whole_lines
from lockstep.worker.upload.stream import Stream

log = structlog.get_logger(__name__)

LOG_BATCH_BYTES: Final = 6 * limits.LOG_LINE_BYTES_MAX + 4096
"""Room for the longest record: a control character takes one byte of a line and six in JSON."""


class LogUploader(FileUploader[logs.LogOffset, LogRecord]):
    """``logs/NNNNNN.jsonl``: an offset is a segment and bytes into it.

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

    def _offset_of(self, state: streams.StreamState) -> logs.LogOffset:
        return logs.LogOffset(state.log_segment, state.log_offset)

    def _is_behind(self, at: logs.LogOffset, stored: logs.LogOffset) -> bool:
        return at < stored

    def _read(self, at: logs.LogOffset, last: bool) -> Chunk[logs.LogOffset, LogRecord] | None:
        files = self._folder.files
        complete = next_segment_exists(files, at.segment)
        name = _name(at.segment)
        if not files.exists(name) and (
            following := [number for number in self._folder.log_segments() if number > at.segment]
        ):
            return self._without(at, min(following))
        found = whole_lines(
            files, name, at.offset, last=last or complete, batch_bytes=LOG_BATCH_BYTES
        )
        if found.offset == at.offset:
            return Chunk(at, logs.LogOffset(self._next(at.segment), 0), []) if complete else None
        records = [record for line in found.lines if (record := _log_record(line)) is not None]
        after = logs.LogOffset(at.segment, found.offset)
        return Chunk(at, after, records, more=complete or not found.at_end)

    def _next(self, segment: int) -> int:
        """Return the segment to read after a complete one, behind empty ones of user code."""
        files, following = self._folder.files, segment + 1
        while next_segment_exists(files, following) and not files.size(_name(following)):
            following += 1
        return following

    def _append(self, batch: Chunk[logs.LogOffset, LogRecord]) -> bool:
        with self._database.series() as session:
            return logs.append(
                session,
                assignment_id=self._stream.assignment_id,
                token=self._stream.token,
                offset_before=batch.before,
                offset_after=batch.after,
                records=batch.records,
            )

    def _without(self, at: logs.LogOffset, following: int) -> Chunk[logs.LogOffset, LogRecord]:
        """Continue behind segments that were deleted before the database was set back."""
        size = in_words((following - at.segment) * limits.LOG_SEGMENT_BYTES - at.offset)
        self._warn(f"about {size} of the log are missing: they are no longer on the node")
        note = (
            f"… about {size} missing: the database was restored, and they were no longer on the "
            f"node …"
        )
        record = LogRecord(time=time.time(), rank=-1, stream="launcher", text=note)
        return Chunk(at, logs.LogOffset(following, 0), [record])

    def _note_stored(self, at: logs.LogOffset) -> None:
        try:
            if at.segment != self._kept_from:
                self._delete_stored(at.segment)
                self._kept_from = at.segment
            self._folder.write_uploaded(at.segment, at.offset)
        except OSError as error:
            # User code has replaced the folder, or the disk fails. The launcher is limited by the
            # last offset.
            log.warning("the offset of the log cannot be noted", error=str(error))

    def _delete_stored(self, segment: int) -> None:
        kept_bytes = limits.LOG_STORED_BYTES
        for number in reversed(self._folder.log_segments()):
            if number >= segment:
                continue
            name = _name(number)
            kept_bytes -= self._folder.files.size(name)
            if kept_bytes <= 0:
                self._folder.files.remove(name, seconds=1.0)


def _name(segment: int) -> str:
    return f"{attempt.LOGS}/{segment_name(segment)}"


def _log_record(line: Line) -> LogRecord | None:
    """The record in a line; None for one that a killed launcher left half written."""
    try:
        return LogRecord.model_validate_json(line.text)
    except ValidationError:
        log.warning("a log line is damaged and dropped", offset=line.offset)
        return None
