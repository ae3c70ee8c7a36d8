"""Upload of rank 0's events, in their order.

Events are processed strictly in order, and the offset after each is stored after its effect. An
agent that dies in between repeats the event. Only a warning may be reported twice.

After a restore of the database, events are processed again from its offset: a checkpoint that is no
longer on the node is published from the store. Then its rows are compared with the store
(``worker.upload.reconciling``). The offset is in the series database. A jobs database that is older
gets the state and the plan of the attempt again, also of events before the offset.

Not here: what an event does (``worker.upload.events.effects``), metrics and logs
(``worker.upload.file_uploader``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import EngineEvent
from lockstep.storage.db.database import Database
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.series import streams
from lockstep.worker.folders import Folder
from lockstep.worker.upload.events import event_limits
from lockstep.worker.upload.events.effects import Effects
from lockstep.worker.upload.events.history import History
from lockstep.worker.upload.file_uploader import is_poison
from lockstep.worker.upload.files.lines import Line, whole_lines
from lockstep.worker.upload.reconciling import reconcile
from lockstep.worker.upload.stream import Stream, is_open, state_of

log = structlog.get_logger(__name__)


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
        redact: Callable[[str], str] = str,
    ):
        self._database = database
        self._blobs = blobs
        self._folder = folder
        self._stream = stream
        self._is_script = is_script
        self._keep_last = keep_last
        self.history = History(database, stream, node_name, redact)
        self.effects = Effects(
            database,
            blobs,
            folder,
            stream,
            self.history,
            keep_last=keep_last,
            log_every_steps=log_every_steps,
            continues=continues,
            before_publishing=before_publishing,
        )
        self._offset: int | None = None
        self._refused_at: int | None = None
        self._refused = False
        self._set_back = False
        self._rows_differ = False
        self._state_differs = True
        self.on_set_back: Callable[[str], None] = lambda _what: None
        """Called after a restore of the database, in the uploader's thread; its text is empty."""

    def set_back(self, what: str) -> None:
        """Restart at the offset of the database, which was restored from a backup. From any thread.

        ``what`` is a noun for the data that another uploader sends again, for the job's owner; may
        be empty.
        """
        if what:
            message = f"The database was restored from a backup: missing {what} are sent again."
            self.history.report("stream_reset", message, {"what": what})
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
        self.history.send_waiting()
        if self._set_back:
            self._set_back, self._rows_differ, self._state_differs = False, True, True
            self._offset = None
            self.effects.forget()
        self.effects.report_save_time()
        # A script does not report its rendezvous; the start of all its ranks is the substitute.
        if (
            self._is_script
            and not self.effects.marked_running
            and self._folder.files.exists(attempt.RANKS)
        ):
            self.effects.mark_running()
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
        newest: dict[str, EngineEvent] = {}
        offset, found = -1, 0
        while offset < found < end:
            offset = found
            batch = whole_lines(self._folder.files, attempt.EVENTS, offset)
            for line in batch.lines:
                event = event_limits.read(line, self._stream.assignment_id)
                if line.end <= end and event is not None and event.kind in {"running", "plan"}:
                    newest[event.kind] = event
            found = batch.offset
        for event in newest.values():
            self._apply(event)

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
        if event.kind == "running" and self.effects.marked_running:
            return False
        with self.history.of(f"{self._stream.assignment_id}:{line.end}"):
            if event.kind not in {"running", "checkpoint"} and not self.history.takes_one_more():
                return False
            return self._apply(event, overtaken=overtaken)

    def _apply(self, event: EngineEvent, *, overtaken: bool = False) -> bool:
        try:
            if overtaken:
                return self.effects.skip_overtaken(event.data)
            self.effects.apply(event)
        except Exception as error:
            if not is_poison(error):
                raise
            log.warning(
                "an event is dropped", assignment=self._stream.assignment_id, error=repr(error)
            )
        return True
