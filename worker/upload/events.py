"""Effects of rank 0's events: running, plan, checkpoints, warnings.

Events are processed strictly in order, and the offset after each is stored after its effect. An
agent that dies in between repeats the event, so every effect is idempotent: marking and settling
change nothing the second time, a checkpoint is stored under the same key and published once. Only a
warning may be reported twice.

A checkpoint counts once its row exists: it is put into the store, published by a write that the
token guards, and then removed from the node. The metrics of the steps before it are stored first: a
job that resumes from it on another node does not repeat these steps. A store that does not answer
is retried for ``PUBLISH_PATIENCE_SECONDS``; then the checkpoint is given up with a warning, and
training continues.

After a restore of the database, events are processed again from its offset: a checkpoint that is no
longer on the node is published from the store. Then its rows are compared with the store
(``worker.upload.reconciling``). The offset is in the series database. A jobs database that is older
gets the state and the plan of the attempt again, also of events before the offset.

Not here: metrics and logs (``worker.upload.file_uploader``), and the verification of a checkpoint
(``engine.checkpoints``).
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import structlog

from lockstep.domain import limits
from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import EngineEvent
from lockstep.domain.life.grace import SaveTime
from lockstep.domain.training.memory import compared
from lockstep.domain.training.metrics import from_json
from lockstep.domain.training.plan import BatchPlan
from lockstep.storage.attempts import attempts, checkpoints, events, stops
from lockstep.storage.db.database import Database
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.objects.published import Note, write_note
from lockstep.storage.objects.unpublished import UnsafeCheckpointError
from lockstep.storage.series import series, streams
from lockstep.worker.folders import Folder
from lockstep.worker.upload import event_limits
from lockstep.worker.upload.event_limits import EventRate
from lockstep.worker.upload.file_uploader import is_poison
from lockstep.worker.upload.files.lines import Line, whole_lines
from lockstep.worker.upload.reconciling import reconcile
from lockstep.worker.upload.stream import Stream, is_open, state_of

log = structlog.get_logger(__name__)

PUBLISH_PATIENCE_SECONDS = 300.0
WARNINGS_MAX = 100
"""Kept while the database is away; the oldest go first."""
WARNING_CHARS_MAX = 2_000


class _WaitingEvent(NamedTuple):
    """Event for the job's owner that is not sent yet."""

    kind: str
    message: str
    data: dict[str, Any]


class EventUploader:
    """``spool/events.jsonl``, and the warnings of the other streams of the same attempt."""

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        folder: Folder,
        stream: Stream,
        *,
        node_name: str,
        is_script: bool,
        keep_last: int,
        log_every_steps: int = 1,
        continues: str | None = None,
        before_publishing: Callable[[], None] = lambda: None,
    ):
        self._database = database
        self._blobs = blobs
        self._folder = folder
        self._stream = stream
        self._actor = f"node:{node_name}"
        self._is_script = is_script
        self._keep_last = keep_last
        self._log_every_steps = log_every_steps
        self._continues = continues
        self._before_publishing = before_publishing
        self._waiting: deque[_WaitingEvent] = deque(maxlen=WARNINGS_MAX)
        self._offset: int | None = None
        self._refused_at: int | None = None
        self._refused = False
        self._set_back = False
        self._rows_differ = False
        self._state_differs = True
        self.on_set_back: Callable[[str], None] = lambda _what: None
        """Called after a restore of the database, in the uploader's thread; its text is empty."""
        self._marked_running = False
        self._origin: str | None = None
        """Of the line of the spool that is carried out."""
        self._failing_since: float | None = None
        self._rate = EventRate()
        self._added = 0
        """Events for the job's history, with those beyond the limit."""
        self.resumed_step: int | None = None
        """Step of the checkpoint from which the attempt resumed."""
        self._save_time: SaveTime | None = None
        self.final_checkpoint_lost = False
        """The run's last checkpoint could not be stored: its result is not there."""

    def warn(self, message: str) -> None:
        """Queue a warning for the job's owner. From any thread; sent by the next step."""
        self.report("warning", message, {})

    def report(self, kind: str, message: str, data: dict[str, Any]) -> None:
        """Queue an event. From any thread; sent by the next step."""
        self._waiting.append(_WaitingEvent(kind, message[:WARNING_CHARS_MAX], data))

    def set_back(self, what: str) -> None:
        """Restart at the offset of the database, which was restored from a backup. From any thread.

        ``what`` is a noun for the data that another uploader sends again, for the job's owner; may
        be empty.
        """
        if what:
            message = f"The database was restored from a backup: missing {what} are sent again."
            self._waiting.append(_WaitingEvent("stream_reset", message, {"what": what}))
        self._set_back = True

    def begin(self, state: streams.StreamState | None) -> None:
        """Continue from where the stream is, as its opener has read it.

        Without this it is read by the first step.
        """
        self._offset = None if state is None else state.events_offset
        # An agent before this one has seen events, and may have missed a restore.
        self._rows_differ = bool(self._offset)

    def step(self, last: bool) -> bool:
        """Carry out one batch of events. See ``worker.upload.upload_loop``."""
        self._send_waiting()
        if self._set_back:
            self._set_back, self._rows_differ, self._state_differs = False, True, True
            self._offset, self._marked_running, self._save_time = None, False, None
        self._report_save_time()
        # A script does not report its rendezvous; the start of all its ranks is the substitute.
        if (
            self._is_script
            and not self._marked_running
            and self._folder.files.exists(attempt.RANKS)
        ):
            self._mark_running()
        if self._offset is None and not self._refused:
            self._offset = self._read_offset()
        if self._refused or self._offset is None:
            return False
        if self._state_differs:
            self._repeat_state(self._offset)
            self._state_differs = False
        found = whole_lines(self._folder.files, attempt.EVENTS, self._offset, last=last)
        if found.offset == self._offset:
            self._agree_with_the_store(last)
            return last and self._has_moved(self._offset)
        # An event that a later step repeats would be twice in the job's history.
        if self._has_moved(self._offset):
            return True
        if self._carry_out_all(found.lines):
            self._advance(found.offset)
        return True

    def _carry_out_all(self, lines: Sequence[Line]) -> bool:
        """Carry out events in their order. Return False if the stream is no longer this agent's."""
        read = [event_limits.read(line, self._stream.assignment_id) for line in lines]
        overtaken = event_limits.overtaken(read, self._keep_last)
        for at, (line, event) in enumerate(zip(lines, read, strict=True)):
            if event is None:
                continue
            is_done = self._carry_out(line, event, overtaken=at in overtaken)
            if is_done and not self._advance(line.end):
                return False
        return True

    def _repeat_state(self, end: int) -> None:
        """Carry out again the last event of each kind before ``end`` that sets the state."""
        newest: dict[str, tuple[Line, EngineEvent]] = {}
        offset, found = -1, 0
        while offset < found < end:
            offset = found
            batch = whole_lines(self._folder.files, attempt.EVENTS, offset)
            for line in batch.lines:
                event = event_limits.read(line, self._stream.assignment_id)
                if line.end <= end and event is not None and event.kind in {"running", "plan"}:
                    newest[event.kind] = line, event
            found = batch.offset
        for line, event in newest.values():
            self._carry_out(line, event, overtaken=False)

    def _read_offset(self) -> int | None:
        """Return the offset that the stream has.

        None if nothing of this attempt is wanted any more.
        """
        state = state_of(self._database, self._stream, lambda: self.on_set_back(""))
        refused_at, self._refused_at = self._refused_at, None
        same = state.events_offset == refused_at
        self._refused = state.sealed or (same and not is_open(self._database, self._stream))
        return None if self._refused else state.events_offset

    def _has_moved(self, offset: int) -> bool:
        """Return whether the database has another offset than this agent.

        The next step continues from that one.
        """
        self._offset = self._read_offset()
        if self._offset is not None and self._offset < offset:
            self.set_back("")
        return self._offset != offset

    def _agree_with_the_store(self, last: bool) -> None:
        if not self._rows_differ:
            return
        try:
            reconcile(self._database, self._blobs, self._stream)
        except Exception as error:
            # The end of an attempt does not wait for the store: the next attempt compares them
            # before it starts.
            if not last:
                raise
            log.warning(
                "the store is not compared with the database",
                assignment=self._stream.assignment_id,
                error=repr(error),
            )
        self._rows_differ = False

    def _advance(self, offset: int) -> bool:
        """Note that everything before ``offset`` is carried out.

        False if the stream is not where it was.
        """
        before, self._offset = self._offset, None
        assert before is not None
        if offset != before:
            with self._database.series() as session:
                moved = streams.advance_events(
                    session,
                    assignment_id=self._stream.assignment_id,
                    token=self._stream.token,
                    offset_before=before,
                    offset_after=offset,
                )
            if not moved:
                self._refused_at, self._rows_differ = before, True
                return False
        self._offset = offset
        return True

    def _carry_out(self, line: Line, event: EngineEvent, *, overtaken: bool) -> bool:
        """Apply an event, unless its data are damaged. Return whether it may have had an effect."""
        if event.kind == "running" and self._marked_running:
            return False
        if event.kind not in {"running", "checkpoint"} and not self._takes_one_more():
            return False
        self._origin = f"{self._stream.assignment_id}:{line.end}"
        try:
            if overtaken:
                return self._skip_overtaken(event.data)
            self._apply(event)
        except Exception as error:
            if not is_poison(error):
                raise
            log.warning(
                "an event is dropped", assignment=self._stream.assignment_id, error=repr(error)
            )
        finally:
            self._origin = None
        return True

    def _takes_one_more(self) -> bool:
        """Return whether the job's history gets one more event of the ranks in this minute."""
        if self._rate.takes():
            return True
        if self._rate.dropped == 1:
            limit = limits.EVENTS_PER_MINUTE_MAX
            self.warn(f"The job writes more than {limit} events in a minute: the others are lost.")
        return False

    def _skip_overtaken(self, data: dict[str, Any]) -> bool:
        """Remove a checkpoint that waits while too many newer ones do. Return whether it was there.

        The engine has removed it already where the store is slow.
        """
        folder = _folder_of(data)
        if not self._folder.files.is_file(f"{folder}/{attempt.MANIFEST}"):
            return False
        self._give_up(folder, int(data["step"]), "too many newer ones wait for the store")
        return True

    def _give_up(self, folder: str, step: int, why: str) -> None:
        if self._takes_one_more():
            self._add(
                "checkpoint_skipped",
                f"The checkpoint of step {step} is not kept: {why}.",
                {"folder": PurePosixPath(folder).name, "why": why},
            )
        self._remove(folder)

    def _apply(self, event: EngineEvent) -> None:
        match event.kind:
            case "running":
                self._mark_running()
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
                self._add(
                    "initialized",
                    f"Training starts with the weights of {source}.",
                    {"from": source},
                )
            case "code_incomplete":
                missing = event.data.get("why")
                self._add("code_incomplete", f"The code is not complete: {missing}.", event.data)
            case "checkpoint_skipped":
                folder, why = event.data.get("folder"), event.data.get("why")
                self._add(
                    "checkpoint_skipped", f"Checkpoint {folder} is not used: {why}.", event.data
                )
            case "memory":
                self._add("memory", _memory_sentence(event.data), event.data)
            case "warning" | "silent" | "output_again":
                self._add(
                    event.kind, str(event.data.get("message", ""))[:WARNING_CHARS_MAX], event.data
                )

    def _resumed(self, data: dict[str, Any]) -> None:
        message = f"Training resumes from the checkpoint of step {data.get('step')}."
        keys = ("step", "from", "changed", "exact", "why")
        known = {key: data[key] for key in keys if data.get(key) is not None}
        if data.get("changed"):
            message += f" Changed since then: {data['changed']}."
        self._add("resumed", message[:WARNING_CHARS_MAX], known)
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
            self._add("points_missing", message, {"first": first, "last": step})

    def _mark_running(self) -> None:
        with self._database.jobs() as session:
            attempts.mark_running(session, self._stream.assignment_id, self._stream.token)
        self._marked_running = True

    def _report_save_time(self) -> None:
        """Store the duration of a save before its checkpoint, whose upload may take longer."""
        found = self._folder.save_time()
        if found is not None and found != self._save_time:
            part = self._stream
            with self._database.jobs() as session:
                stops.note_save(session, part.assignment_id, part.token, found)
            self._save_time = found

    def _send_waiting(self) -> None:
        while self._waiting:
            event = self._waiting.popleft()
            try:
                self._add(*event)
            except Exception as error:
                if is_poison(error):
                    log.warning(
                        "a warning is dropped",
                        assignment=self._stream.assignment_id,
                        error=repr(error),
                    )
                    continue
                self._waiting.appendleft(event)
                raise

    def _add(self, kind: str, message: str, data: dict[str, Any]) -> None:
        self._added += 1
        if self._added > limits.EVENTS_PER_ATTEMPT_MAX:
            log.warning(
                "an event beyond the limit is dropped",
                assignment=self._stream.assignment_id,
                dropped=self._added - limits.EVENTS_PER_ATTEMPT_MAX,
            )
            return
        with self._database.jobs() as session:
            events.add(
                session,
                job_id=self._stream.job_id,
                attempt=self._stream.attempt_number,
                kind=kind,
                message=message,
                actor=self._actor,
                data=data,
                # The offset is in the other database: a kill in between would add it twice.
                origin=None if self._origin is None else f"{self._origin}:{kind}",
            )

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
        while not self._folder.files.remove(folder, seconds=1.0):
            log.info("a checkpoint has very many entries: its removal goes on", folder=folder)

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
            self.warn(f"checkpoint {name} could not be stored and is skipped: {error}")
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
