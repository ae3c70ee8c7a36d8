"""Limits of the events that ranks write: user code can write to the spool as well.

Not here: the effects of the events (``worker.upload.events.effects``).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

import structlog

from lockstep.domain import limits
from lockstep.domain.life.attempt import EngineEvent
from lockstep.worker.upload.files.lines import Line

log = structlog.get_logger(__name__)

_MINUTE_SECONDS = 60.0


class EventRate:
    """Takes ``limits.EVENTS_PER_MINUTE_MAX`` events in any minute, and counts the others."""

    def __init__(self) -> None:
        self._taken: deque[float] = deque(maxlen=limits.EVENTS_PER_MINUTE_MAX)
        self._newest: str | None = None
        self.dropped = 0

    def takes(self, event: str | None) -> bool:
        """Return whether an event is taken now; the one that was taken last is no further one."""
        if event is not None and event == self._newest:
            return True
        now = time.monotonic()
        if len(self._taken) == self._taken.maxlen and now - self._taken[0] < _MINUTE_SECONDS:
            self.dropped += 1
            return False
        self._taken.append(now)
        self._newest = event
        return True


def read(line: Line, assignment_id: str) -> EngineEvent | None:
    """Return the event of a line; None if it is too long or damaged."""
    try:
        if len(line.text) > limits.EVENT_LINE_BYTES_MAX:
            raise ValueError(f"it has {len(line.text)} bytes")
        return EngineEvent.model_validate_json(line.text)
    except ValueError as error:
        log.warning("an event is dropped", assignment=assignment_id, error=repr(error))
        return None


def overtaken(events: Sequence[EngineEvent | None], keep_last: int) -> set[int]:
    """Return the places of the checkpoints before the newest ones that may wait.

    An engine keeps no more than ``keep_last`` and the best one on the node.
    """
    most = max(limits.CHECKPOINTS_WAITING_MAX, keep_last + 1)
    places = [at for at, event in enumerate(events) if event and event.kind == "checkpoint"]
    return set(places[:-most])
