"""Events of an attempt in the history of its job, within the limits of a job.

Not here: what else an event does (``worker.upload.events.effects``), the limits
(``worker.upload.events.event_limits``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import structlog

from lockstep.domain import limits
from lockstep.storage.attempts import events
from lockstep.storage.db.database import Database
from lockstep.worker.upload.events.event_limits import EventRate
from lockstep.worker.upload.file_uploader import is_poison
from lockstep.worker.upload.stream import Stream

log = structlog.get_logger(__name__)

WARNINGS_MAX = 100
"""Kept while the database is away; the oldest go first."""
WARNING_CHARS_MAX = 2_000


class _WaitingEvent(NamedTuple):
    """Event for the job's owner that is not sent yet."""

    kind: str
    message: str
    data: dict[str, Any]


class History:
    """Writer of the events of one attempt."""

    def __init__(
        self,
        database: Database,
        stream: Stream,
        node_name: str,
        redact: Callable[[str], str] = str,
    ):
        self._database = database
        self._redact = redact
        self._stream = stream
        self._actor = f"node:{node_name}"
        self._waiting: deque[_WaitingEvent] = deque(maxlen=WARNINGS_MAX)
        self._origin: str | None = None
        self._rate = EventRate()
        self._added = 0
        """Events, with those beyond the limit."""

    def report(self, kind: str, message: str, data: dict[str, Any]) -> None:
        """Queue an event. From any thread; sent by the next :meth:`send_waiting`."""
        message = self._redact(message)[:WARNING_CHARS_MAX]
        self._waiting.append(_WaitingEvent(kind, message, data))

    def warn(self, message: str) -> None:
        """Queue a warning for the job's owner. From any thread."""
        self.report("warning", message, {})

    @contextmanager
    def of(self, origin: str) -> Iterator[None]:
        """Name the line of the spool that is carried out: its events are added once."""
        self._origin = origin
        try:
            yield
        finally:
            self._origin = None

    def takes_one_more(self) -> bool:
        """Return whether the job's history gets one more event of the ranks in this minute."""
        if self._rate.takes(self._origin):
            return True
        if self._rate.dropped == 1:
            limit = limits.EVENTS_PER_MINUTE_MAX
            self.warn(f"The job writes more than {limit} events in a minute: the others are lost.")
        return False

    def send_waiting(self) -> None:
        """Add what is queued, in its order."""
        while self._waiting:
            event = self._waiting.popleft()
            try:
                self.add(*event)
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

    def add(self, kind: str, message: str, data: dict[str, Any]) -> None:
        """Add an event now. Tries that fail do not count."""
        if self._added >= limits.EVENTS_PER_ATTEMPT_MAX:
            self._added += 1
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
                message=self._redact(message),
                actor=self._actor,
                data={name: self._redacted(each) for name, each in data.items()},
                # The offset is in the other database: a kill in between would add it twice.
                origin=None if self._origin is None else f"{self._origin}:{kind}",
            )
        self._added += 1

    def _redacted(self, value: Any) -> Any:
        """Return a JSON value without secrets: ranks and files of the job wrote it."""
        if isinstance(value, str):
            return self._redact(value)
        if isinstance(value, dict):
            return {self._redacted(name): self._redacted(each) for name, each in value.items()}
        return list(map(self._redacted, value)) if isinstance(value, list | tuple) else value
