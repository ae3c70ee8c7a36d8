"""Effects of rank 0's events: running, plan, checkpoints, warnings.

Each effect is idempotent: marking and settling change nothing the second time, a checkpoint is
stored under the same key and published once.

A checkpoint counts once its row exists: it is put into the store, published by a write that the
token guards, and then removed from the node. The metrics of the steps before it are stored first: a
job that resumes from it on another node does not repeat these steps. A store that does not answer
is retried for ``PUBLISH_PATIENCE_SECONDS``; then the checkpoint is given up with a warning, and
training continues.

Not here: the order of the events and their offset (``worker.upload.events.event_uploader``), and
the verification of a checkpoint (``engine.checkpoints``).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import structlog

from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import EngineEvent
from lockstep.domain.life.grace import SaveTime
from lockstep.domain.training.memory import compared
from lockstep.domain.training.metrics import from_json
from lockstep.domain.training.plan import BatchPlan
from lockstep.storage.attempts import attempts, checkpoints, stops
from lockstep.storage.db.database import Database
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.objects.published import Note, write_note
from lockstep.storage.objects.unpublished import UnsafeCheckpointError
from lockstep.storage.series import series
from lockstep.system.files import BROKEN
from lockstep.worker.folders import Folder
from lockstep.worker.upload.events.history import WARNING_CHARS_MAX, History
from lockstep.worker.upload.file_uploader import is_poison
from lockstep.worker.upload.stream import Stream

log = structlog.get_logger(__name__)

PUBLISH_PATIENCE_SECONDS = 300.0


class Effects:
    """Application of the events of one attempt to its job."""

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        folder: Folder,
        stream: Stream,
        history: History,
        *,
        keep_last: int,
        log_every_steps: int,
        continues: str | None,
        before_publishing: Callable[[], None],
    ):
        self._database = database
        self._blobs = blobs
        self._folder = folder
        self._stream = stream
        self._history = history
        self._keep_last = keep_last
        self._log_every_steps = log_every_steps
        self._continues = continues
        self._before_publishing = before_publishing
        self._failing_since: float | None = None
        self._save_time: SaveTime | None = None
        self.marked_running = False
        self.resumed_step: int | None = None
        """Step of the checkpoint from which the attempt resumed."""
        self.final_checkpoint_lost = False
        """The run's last checkpoint could not be stored: its result is not there."""

    def forget(self) -> None:
        """Apply again what is stored once: the database was restored from a backup."""
        self.marked_running, self._save_time = False, None

    def apply(self, event: EngineEvent) -> None:
        """Apply an event."""
        match event.kind:
            case "running":
                self.mark_running()
            case "plan":
                BatchPlan.model_validate(event.data)
                with self._database.jobs() as session:
                    attempts.settle_plan(
                        session, self._stream.assignment_id, self._stream.token, event.data
                    )
            case "checkpoint":
                self._checkpoint(event.data)
            case "resumed":
                self._resumed(event.data)
            case "initialized":
                source = event.data.get("from")
                self._history.add(
                    "initialized",
                    f"Training starts with the weights of {source}.",
                    {"from": source},
                )
            case "code_incomplete":
                missing = event.data.get("why")
                self._history.add(
                    "code_incomplete", f"The code is not complete: {missing}.", event.data
                )
            case "checkpoint_skipped":
                folder, why = event.data.get("folder"), event.data.get("why")
                self._history.add(
                    "checkpoint_skipped", f"Checkpoint {folder} is not used: {why}.", event.data
                )
            case "memory":
                self._history.add("memory", _memory_sentence(event.data), event.data)
            case "warning" | "silent" | "output_again":
                self._history.add(
                    event.kind, str(event.data.get("message", ""))[:WARNING_CHARS_MAX], event.data
                )

    def mark_running(self) -> None:
        """Store that the ranks have started."""
        with self._database.jobs() as session:
            attempts.mark_running(session, self._stream.assignment_id, self._stream.token)
        self.marked_running = True

    def report_save_time(self) -> None:
        """Store the duration of a save before its checkpoint, whose upload may take longer."""
        found = self._folder.save_time()
        if found is not None and found != self._save_time:
            part = self._stream
            with self._database.jobs() as session:
                stops.note_save(session, part.assignment_id, part.token, found)
            self._save_time = found

    def skip_overtaken(self, data: dict[str, Any]) -> bool:
        """Remove a checkpoint that waits while too many newer ones do. Return whether it was there.

        The engine has removed it already where the store is slow.
        """
        folder = _folder_of(data)
        if not self._folder.files.is_file(f"{folder}/{attempt.MANIFEST}"):
            return False
        self._give_up(folder, int(data["step"]), "too many newer ones wait for the store")
        return True

    def _give_up(self, folder: str, step: int, why: str) -> None:
        if self._history.takes_one_more():
            self._history.add(
                "checkpoint_skipped",
                f"The checkpoint of step {step} is not kept: {why}.",
                {"folder": PurePosixPath(folder).name, "why": why},
            )
        self._remove(folder)

    def _resumed(self, data: dict[str, Any]) -> None:
        message = f"Training resumes from the checkpoint of step {data.get('step')}."
        keys = ("step", "from", "changed", "exact", "why")
        known = {key: data[key] for key in keys if data.get(key) is not None}
        if data.get("changed"):
            message += f" Changed since then: {data['changed']}."
        self._history.add("resumed", message[:WARNING_CHARS_MAX], known)
        if isinstance(data.get("step"), int):
            self.resumed_step = data["step"]
            self._report_missing_points(data["step"])

    def _report_missing_points(self, step: int) -> None:
        """Report points of the steps before a checkpoint that the database does not have.

        A backup that was restored after their spool was deleted lacks them, and so does a node that
        was lost with its spool.
        """
        with self._database.read_series() as session:
            own = series.last_step(session, self._stream.job_id, before=self._stream.attempt_number)
            former = None if self._continues is None else series.last_step(session, self._continues)
        first = 1 + max(own or 0, former or 0)
        if first + self._log_every_steps <= step:
            message = (
                f"Points and log lines of the steps {first} to {step} are missing: they were "
                "stored after the backup that was restored, or were lost with their node."
            )
            self._history.add("points_missing", message, {"first": first, "last": step})

    def _checkpoint(self, data: dict[str, Any]) -> None:
        folder = _folder_of(data)
        name = PurePosixPath(folder).name
        key = f"jobs/{self._stream.job_id}/{self._stream.attempt_number}/{name}"
        note = Note(
            attempt=self._stream.attempt_number,
            step=int(data["step"]),
            bytes=int(data["bytes"]),
            sha256=str(data["sha256"]),
            final=bool(data["final"]),
            value=_value(data.get("metric")),
        )
        if self._folder.files.is_file(f"{folder}/{attempt.MANIFEST}"):
            if not self._store(folder, key, note):
                self.final_checkpoint_lost = note.final
                return
        elif not self._is_stored(key, note.sha256):
            log.info("a checkpoint is no longer on the node or in the store", key=key)
            return
        self._before_publishing()
        with self._database.jobs() as session:
            published = checkpoints.publish(
                session,
                self._stream.assignment_id,
                self._stream.token,
                location=key,
                **note.model_dump(exclude={"attempt"}),
            )
        if not published:
            log.warning("a checkpoint was rejected: this attempt no longer holds the job", key=key)
            return
        self._note(key, note)
        self._remove(folder)
        with self._database.jobs() as session:
            dropped = checkpoints.prune(session, self._stream.job_id, self._keep_last)
        for location in dropped:
            self._blobs.delete_tree(location)

    def _remove(self, folder: str) -> None:
        try:
            while not self._folder.files.remove(folder, seconds=1.0):
                log.info("a checkpoint has very many entries: its removal goes on", folder=folder)
        except OSError as error:
            if error.errno not in BROKEN:
                raise
            log.warning("a checkpoint stays on a disk that fails", folder=folder)

    def _note(self, key: str, note: Note) -> None:
        try:
            write_note(self._blobs, key, note)
        except Exception as error:  # noqa: BLE001 - a remote store raises its library's exceptions
            # The checkpoint counts without it. It is missed only if the database is restored.
            log.warning(
                "writing the publication record of a checkpoint failed", key=key, error=repr(error)
            )

    def _is_stored(self, key: str, manifest_sha256: str) -> bool:
        """Return whether this checkpoint is in the store.

        It is if it was published and the agent died before it noted that, or if the database was
        set back.
        """
        try:
            manifest = self._blobs.read(f"{key}/{attempt.MANIFEST}")
        except FileNotFoundError:
            return False
        return hashlib.sha256(manifest).hexdigest() == manifest_sha256

    def _store(self, folder: str, key: str, note: Note) -> bool:
        """Put a checkpoint into the store.

        Return False, with an event, if it may not be kept, or once that has failed for too long.
        """
        name = PurePosixPath(folder).name
        try:
            self._blobs.put_checkpoint(self._folder.files, folder, key, note.sha256)
        except UnsafeCheckpointError as error:
            self._give_up(folder, note.step, str(error))
            return False
        except (
            Exception
        ) as error:  # a remote store raises its library's exceptions, not only OSError
            if is_poison(error):
                raise
            now = time.monotonic()
            self._failing_since = self._failing_since or now
            if now - self._failing_since < PUBLISH_PATIENCE_SECONDS:
                raise
            self._history.warn(f"checkpoint {name} could not be stored and is skipped: {error}")
            self._failing_since = None
            return False
        self._failing_since = None
        return True


def _folder_of(data: dict[str, Any]) -> str:
    """Return the folder of a checkpoint's event, relative to the attempt's."""
    return f"{attempt.CHECKPOINTS}/{PurePosixPath(str(data['folder'])).name}"


def _value(metric: Any) -> float | None:
    """Return the checkpoint's metric, if the engine reported one."""
    return None if metric is None or metric["value"] is None else from_json(metric["value"])


def _memory_sentence(data: dict[str, Any]) -> str:
    """Return measured and predicted memory as a sentence."""
    words = compared(data["measured_bytes"], data["measure"], data.get("forecast_bytes"))
    return f"Memory: {words}."
