"""Uploaders of one attempt.

Metrics, logs, events, samples, event files and kept files, each with its own thread.

Not here: the data and exactly-once delivery (``worker.upload.file_uploader``,
``worker.upload.events.event_uploader``).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import AssignmentFile
from lockstep.storage.db.database import Database
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.series import streams
from lockstep.system.redaction import Redactor, secrets_of
from lockstep.worker.devices.sampling import Sampler
from lockstep.worker.folders import Folder
from lockstep.worker.upload.events.event_uploader import EventUploader
from lockstep.worker.upload.kept.rounds import KeptFilesUploader
from lockstep.worker.upload.logs import LogUploader
from lockstep.worker.upload.metric_warnings import Repeats
from lockstep.worker.upload.metrics import MetricsUploader
from lockstep.worker.upload.stream import Stream, opened
from lockstep.worker.upload.system import SystemUploader
from lockstep.worker.upload.tensorboard import EventFilesUploader
from lockstep.worker.upload.upload_loop import UploadLoop

SYSTEM_PATIENCE_SECONDS = 10.0
"""The end of an attempt waits so long for its last samples, once all else is sent: a driver that
does not answer must not keep a job from its end."""
NUMBERS_PATIENCE_SECONDS = 5.0
"""A checkpoint waits so long for the numbers of the steps before it."""


class _Uploader(Protocol):
    """Moves one of the attempt's files."""

    def begin(self, state: streams.StreamState | None) -> None: ...

    def step(self, last: bool) -> bool: ...


class Uploaders:
    """Uploaders of an attempt, each with its loop.

    The first that reaches the series database opens the stream there.
    """

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        folder: Folder,
        stream: Stream,
        assignment: AssignmentFile,
        *,
        pause_seconds: float,
        sample_seconds: float,
        files_seconds: float,
    ):
        self._database = database
        self._stream = stream
        self._pause_seconds = pause_seconds
        self._is_on_a_broken_disk = folder.is_on_a_broken_disk
        self._opening = threading.Lock()
        self._found: list[streams.StreamState | None] = []
        train = assignment.spec.train
        self._reporter = EventUploader(
            database,
            blobs,
            folder,
            stream,
            node_name=assignment.node_name,
            is_script=train is None,
            keep_last=1 if train is None else train.checkpoint.keep_last,
            log_every_steps=1 if train is None else train.log_every_steps,
            continues=assignment.spec.continues,
            before_publishing=self._numbers_first,
            redact=Redactor(secrets_of({**os.environ, **assignment.spec.env})).clean,
        )
        history = self._reporter.history
        ranks = assignment.spec.ranks_per_node() or len(assignment.devices)
        # The engine reports each step once, from rank 0.
        repeats = Repeats(folder, history.warn, ranks=ranks) if train is None else None
        self._metrics = MetricsUploader(database, folder, stream, history.warn, repeats=repeats)
        self._event_files = EventFilesUploader(
            database, folder, stream, history.warn, repeats=repeats
        )
        logs = LogUploader(database, folder, stream, history.warn)
        self._file_loops = [self._loop("logs", logs)]
        self._numbers = self._loop("metrics", self._metrics)
        self._attempt_files = folder.files
        if assignment.node_rank == 0:
            # Metrics come from rank 0. Those of a script on another node would be a second curve of
            # the same name.
            self._file_loops.append(self._numbers)
            if train is None:
                self._file_loops.append(self._loop("tensorboard", self._event_files))
        self._kept_files = KeptFilesUploader(
            database,
            blobs,
            folder,
            stream,
            assignment,
            report=history.report,
            every_seconds=files_seconds,
        )
        self._keeping = self._loop("files", self._kept_files)
        self._file_loops.append(self._keeping)
        sampler = Sampler(folder, assignment)
        system = SystemUploader(
            database, folder, stream, sampler.sample, every_seconds=sample_seconds
        )
        self._files = (self._metrics, self._event_files, logs, system)
        for uploader in (*self._files, self._reporter):
            uploader.on_set_back = self.set_back
        self._system = self._loop("system", system)
        self._system_until: float | None = None
        # After the others have ended, because they warn through it.
        self._reporting = self._loop("events", self._reporter)

    def _loop(self, kind: str, uploader: _Uploader) -> UploadLoop:
        return UploadLoop(
            f"{kind}-{self._stream.assignment_id}",
            self._opened(uploader),
            pause_seconds=self._pause_seconds,
            gives_up=self._is_on_a_broken_disk,
        )

    def _opened(self, uploader: _Uploader) -> Callable[[bool], bool]:
        """Steps of an uploader, in its own thread, once the stream is open."""
        began = False

        def step(last: bool) -> bool:
            nonlocal began
            if not began:
                uploader.begin(self._open())
                began = True
            return uploader.step(last)

        return step

    def _open(self) -> streams.StreamState | None:
        """Open the stream, once for all uploaders, and read how far it is.

        Each offset is moved by its own uploader alone.
        """
        with self._opening:
            if not self._found:
                # Where it is not ours to open, every append will be refused.
                self._found.append(opened(self._database, self._stream))
            return self._found[0]

    def set_back(self, what: str = "") -> None:
        """Restart every uploader at the database's offset, after a loss of stored data.

        From any thread. Samples of the node come every few seconds, so this is detected soon, also
        for a job that sends nothing. ``what`` is a noun for data that are sent again.
        """
        for uploader in self._files:
            uploader.compare_offset()
        self._reporter.set_back(what)

    @property
    def last_step(self) -> int | None:
        """Step of the newest record.

        Of event files, where the job writes nothing else, the largest; without any record, the
        step from which the attempt resumed.
        """
        found = (
            self._metrics.last_step,
            self._event_files.last_step,
            self._reporter.effects.resumed_step,
        )
        return next((step for step in found if step is not None), None)

    @property
    def result_lost(self) -> bool:
        """True if the run's last checkpoint, or the rest on a failing disk, could not be stored."""
        gave_up = any(upload_loop.gave_up for upload_loop in self._loops)
        return gave_up or self._reporter.effects.final_checkpoint_lost

    def start(self) -> None:
        for upload_loop in self._loops:
            upload_loop.start()

    def hurry_files(self) -> None:
        """Store the job's files now: it is about to end."""
        self._kept_files.hurry()
        self._keeping.hurry()

    def finish(self, patience_seconds: float) -> bool:
        """Send the rest after the writers' end, and wait this long for it.

        Call again until it returns True: everything is sent.
        """
        deadline = time.monotonic() + patience_seconds
        for upload_loop in (*self._file_loops, self._system):
            upload_loop.finish()
        if not _all_end(self._file_loops, deadline):
            return False
        self._reporting.finish()
        return _all_end((self._reporting, self._system), deadline) or (
            self._reporting.ended() and self._system_ended()
        )

    @property
    def _loops(self) -> tuple[UploadLoop, ...]:
        return (*self._file_loops, self._system, self._reporting)

    def _numbers_first(self) -> None:
        """Wait until the ranks' metrics are stored.

        Only briefly, because the checkpoint is more important.
        """
        wanted = self._attempt_files.size(attempt.METRICS)
        until = time.monotonic() + NUMBERS_PATIENCE_SECONDS
        while (
            self._metrics.stored_bytes < wanted
            and not self._metrics.refused
            and time.monotonic() < until
        ):
            self._numbers.hurry()
            time.sleep(0.01)

    def _system_ended(self) -> bool:
        now = time.monotonic()
        if self._system_until is None:
            self._system_until = now + SYSTEM_PATIENCE_SECONDS
        if not self._system.ended() and now < self._system_until:
            return False
        self._system.stop()
        return True

    def stop(self) -> None:
        """End after the steps that run now, whatever is left."""
        for upload_loop in self._loops:
            upload_loop.stop()

    def join(self, timeout_seconds: float) -> None:
        deadline = time.monotonic() + timeout_seconds
        for upload_loop in self._loops:
            upload_loop.join(max(0.0, deadline - time.monotonic()))


def _all_end(loops: Iterable[UploadLoop], deadline: float) -> bool:
    """Return whether each has ended by then."""
    return all(upload_loop.join(max(0.0, deadline - time.monotonic())) for upload_loop in loops)
