"""Upload of an attempt's samples into the series database.

Taken on schedule, each stored exactly once.

Each sample is a line of ``spool/system.jsonl``, written before it is sent: samples of an outage of
the database, or of a dead agent, are stored later. The offset in the spool moves as every
uploader's does (``worker.upload.file_uploader``).

A sample's step is the job's last stored step at that time, so the series align with those of
training, and an attempt's samples are hidden with the steps that a later attempt repeats. Several
may share a step: their charts run over time.

Not here: the measurements (``worker.devices.sampling``).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final

import structlog

from lockstep.domain import limits
from lockstep.domain.errors import LockstepError
from lockstep.domain.life import attempt
from lockstep.domain.life.manifest import ManifestError, read_manifest
from lockstep.domain.training import metrics
from lockstep.storage.db.database import Database
from lockstep.storage.series import series, streams
from lockstep.system.beneath import UnsafeFileError
from lockstep.worker.folders import Folder
from lockstep.worker.upload.file_uploader import Chunk
from lockstep.worker.upload.files.lines import whole_lines
from lockstep.worker.upload.files.spool import Spool
from lockstep.worker.upload.points import PointsUploader
from lockstep.worker.upload.stream import Stream

log = structlog.get_logger(__name__)

PIECE_BYTES: Final = 1024 * 1024
"""Stored data is released from the disk in pieces of this size."""


class SystemUploader(PointsUploader[int, metrics.StepValues]):
    """Take samples until the writers are gone, and send them. It adds no events to the job."""

    def __init__(
        self,
        database: Database,
        folder: Folder,
        stream: Stream,
        sample: Callable[[], dict[str, float]],
        *,
        every_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__(database, folder, stream, self._log)
        self._sample = sample
        self._every_seconds = every_seconds
        self._clock = clock
        self._next_at = clock()
        self._step: int | None = None
        self._spool = Spool(folder.files, attempt.SYSTEM, piece_bytes=PIECE_BYTES)

    def _log(self, message: str) -> None:
        log.warning("system metrics", assignment=self._stream.assignment_id, message=message)

    def step(self, last: bool) -> bool:
        """Take a sample if it is time, and upload a batch. See ``worker.upload.upload_loop``."""
        now = self._clock()
        if not last and not self.refused and now >= self._next_at:
            # First, because a sample that fails is left out, and not taken again and again.
            self._next_at = now + self._every_seconds
            self._write(metrics.StepValues(self._step_now(), time.time(), self._sample()))
        return super().step(last)

    def _write(self, record: metrics.StepValues) -> None:
        self._spool.shrink_to(limits.SYSTEM_SPOOL_BYTES_MAX)
        # The job that puts something else there has no samples.
        with contextlib.suppress(UnsafeFileError):
            self._folder.files.append(
                attempt.SYSTEM,
                metrics.encode(record).encode() + b"\n",
                most=limits.SPOOL_LENGTH_MAX,
            )

    def _step_now(self) -> int:
        """Return the job's last stored step; the attempt's first step until it has reported one."""
        if self._step is None:
            self._step = resumed_step(self._folder)
        try:
            with self._database.read_series() as session:
                progress = series.progress(session, [self._stream.job_id]).get(self._stream.job_id)
        except LockstepError:
            return (
                self._step
            )  # The database is away; then the last one that was stored is still this.
        if progress is not None and progress.attempt == self._stream.attempt_number:
            self._step = progress.step
        return self._step

    def _offset_of(self, state: streams.StreamState) -> int:
        return state.offsets.get(streams.SYSTEM_SOURCE, 0)

    def _read(self, offset: int, last: bool) -> Chunk[int, metrics.StepValues] | None:
        found = whole_lines(self._folder.files, attempt.SYSTEM, offset, last=last)
        if found.offset == offset:
            return None
        records = [record for line in found.lines if (record := _record(line.text)) is not None]
        return Chunk(offset, found.offset, records, more=not found.at_end)

    def _append(self, batch: Chunk[int, metrics.StepValues]) -> bool:
        return self._append_points(
            batch.records, before=batch.before, after=batch.after, source=streams.SYSTEM_SOURCE
        )

    def _note_stored(self, offset: int) -> None:
        self._spool.stored(offset, kept_bytes=limits.SYSTEM_SPOOL_BYTES_MAX // 2)

    def _is_behind(self, offset: int, stored: int) -> bool:
        return offset < stored


def resumed_step(folder: Folder) -> int:
    """Return the step of the checkpoint that an attempt resumes from; 0 without one."""
    try:
        name = f"{attempt.RESUME}/{attempt.MANIFEST}"
        return read_manifest(folder.files.read(name, most=limits.MANIFEST_BYTES_MAX) or b"").step
    except (OSError, ManifestError):
        return 0


def _record(line: bytes) -> metrics.StepValues | None:
    """Return the sample in a line.

    None for a line that was cut by a full disk or a kill, or is foreign.
    """
    try:
        record = metrics.decode(line, now=0.0, default_step=0)
    except ValueError:
        log.warning("a sample is damaged and dropped")
        return None
    ours = all(name.startswith(metrics.SYSTEM) for name in record.values)
    return record if ours and record.values else None
