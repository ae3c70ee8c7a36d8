"""Requests to end an attempt's ranks, passed to their launcher with a time limit.

Two kinds: a graceful stop (cancel, timeout, pause, requeue, the end of the agent), and the failure
of another node of the attempt. The launcher obeys both by itself; after the limit its tree is
killed.

Not here: requests in the database (``storage.attempts``), and the kill
(``worker.agent.assignment``).
"""

from __future__ import annotations

import time
from typing import Final

import structlog

from lockstep.domain.life.attempt import AssignmentFile, StopFile
from lockstep.domain.life.grace import Cause, StoppedJob, StopReason, grace_of
from lockstep.domain.life.outcomes import Outcome
from lockstep.storage.attempts.stops import StopTerms
from lockstep.worker.agent.outcomes import ended_with_gang, stopped
from lockstep.worker.folders import Folder

log = structlog.get_logger(__name__)

KILL_MARGIN_SECONDS: Final = 3.0
"""Time after the grace in which the launcher ends its ranks and writes the result, before it is
killed with its tree."""
GANG_SECONDS: Final = 8.0
"""Time for the same after the failure of another node, as after the failure of a rank beside
them."""


class Ending:
    """Requests to end one attempt on this node. Every method may be called from any thread.

    Parameters
    ----------
    folder : Folder
    least_seconds : float
        Smallest grace of a stop.
    """

    def __init__(self, folder: Folder, *, least_seconds: float):
        self._folder, self._least_seconds = folder, least_seconds
        self._log = log.bind(assignment=folder.assignment_id)
        self._reason: StopReason | None = None
        self._terms = StopTerms(None, None)
        self._stop_seconds: float | None = None
        self._stop_passed_on = False
        self._gang_failed = self._gang_obeyed = False
        self._kill_at: float | None = None

    def request_stop(self, reason: StopReason) -> bool:
        """Stop gracefully; the first reason stays. Return whether this is the first."""
        if self._reason is not None:
            return False
        self._log.info("a stop was requested", reason=reason)
        self._reason = reason
        return True

    def note_failed_gang(self) -> bool:
        """End the ranks, because those of another node failed. Return whether this is new."""
        if self._gang_failed:
            return False
        self._log.info("another node of the attempt failed")
        self._gang_failed = True
        return True

    def learn(self, terms: StopTerms) -> None:
        """Take over the facts about its stop that are in the database."""
        self._terms = terms

    def grace_seconds(self, cause: Cause, assignment: AssignmentFile | None) -> float:
        """Return the grace of a stop now, from the folder and the database."""
        grace = self._terms.grace
        if grace is not None and grace.seconds == 0:
            cause = "now"
        save, stored = self._folder.save_time(), self._terms.save
        if save is not None and not save.measured and stored is not None and stored.measured:
            save = stored  # This node has only the forecast, or the attempt has not saved yet.
        kind, given = (
            ("script", None)
            if assignment is None
            else (assignment.spec.kind, assignment.spec.stop_grace_seconds)
        )
        return grace_of(StoppedJob(kind, save, self._least_seconds, given), cause).seconds

    def obey(self, assignment: AssignmentFile | None) -> bool:
        """Pass new requests to the launcher. Return whether a stop is among them."""
        if self._gang_failed and not self._gang_obeyed:
            # The limit first, because a full disk may refuse the file: then the job is killed
            # without having been requested to end.
            kill_at = time.monotonic() + GANG_SECONDS
            self._kill_at = min(kill_at, self._kill_at or kill_at)
            self._folder.write_gang_failed()
            self._gang_obeyed = True
        if self._reason is None:
            return False
        grace = self._terms.grace
        hurries = grace is not None and grace.seconds == 0 and self._stop_seconds != 0
        now = time.monotonic()
        if self._kill_at is None or hurries:
            seconds = self.grace_seconds(self._reason, assignment)
            self._stop_seconds, self._stop_passed_on = seconds, False
            self._kill_at = now + seconds + KILL_MARGIN_SECONDS
        elif self._stop_seconds is None or self._stop_passed_on:
            return False
        # Tried again after a failure, so it may be less than the grace.
        left = max(0.0, round(self._kill_at - KILL_MARGIN_SECONDS - now, 3))
        self._folder.write_stop(StopFile(reason=self._reason, grace_seconds=left))
        self._stop_passed_on = True
        return True

    def is_overdue(self) -> bool:
        """Return whether the launcher should have ended by now."""
        overdue = self._kill_at is not None and time.monotonic() >= self._kill_at
        if overdue:
            self._log.warning("killed: it did not stop within its grace period")
        return overdue

    def outcome(self, how: str) -> Outcome | None:
        """Return the outcome if the ranks end by a request. ``how`` completes its message."""
        if self._reason is not None:
            return stopped(self._reason, how)
        return ended_with_gang() if self._gang_failed else None

    def recognise(self) -> None:
        """Find the stop that an agent before this one passed on."""
        stop = self._folder.stop()
        if stop is not None:
            self._reason, self._stop_seconds = stop.reason, stop.grace_seconds
            self._stop_passed_on = True
            self._kill_at = time.monotonic() + stop.grace_seconds + KILL_MARGIN_SECONDS
