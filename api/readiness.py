"""Whether the service can do its work: asked at most every two seconds, however many want to know.

Ready means that a submit would be accepted: both databases answer and have this version's schema. A broker that is away and
a scheduler that was not seen lately are reported and do not make the service unready: jobs are accepted without either, and
an api that is taken out of its proxy for them would only hide what is there.

Not here: the health of nodes (``api.routes.nodes``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from domain.errors import LockstepError
from domain.views import Health
from storage.database import Database

REMEMBER_SECONDS: Final = 2.0
"""Checks are not made more often, however many ask: this address is open."""


class Readiness:
    """The last look, shared by all who ask.

    Parameters
    ----------
    database : Database
    pending : callable
        Answers what the databases still lack of this version's schema; empty when nothing.
    broker_answers : callable
    pass_seconds : callable
        Answers for how many seconds no scheduler has ended a pass; None when none ever has.
    outage_seconds : float
        A scheduler that was silent for longer is away.
    clock : callable
        Monotonic seconds.
    """

    def __init__(
        self,
        database: Database,
        *,
        pending: Callable[[], list[str]],
        broker_answers: Callable[[], bool],
        pass_seconds: Callable[[], float | None],
        outage_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._database = database
        self._pending = pending
        self._broker_answers = broker_answers
        self._pass_seconds = pass_seconds
        self._outage_seconds = outage_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._current = False
        self._seen: tuple[float, Health] | None = None

    def look(self) -> Health:
        """The state now, or as of a moment ago."""
        # Only the very first look is waited for: with the database away a look takes seconds, and everybody who waited
        # for it would hold a thread.
        if not self._lock.acquire(blocking=self._seen is None):
            assert self._seen is not None
            return self._seen[1]
        try:
            if self._seen is None or self._clock() - self._seen[0] > REMEMBER_SECONDS:
                health = self._look()
                self._seen = (self._clock(), health)
            return self._seen[1]
        finally:
            self._lock.release()

    def _look(self) -> Health:
        checks = {"broker": "ok" if self._broker_answers() else "does not answer; jobs are accepted and start later"}
        try:
            self._database.ping()
            # Not asked again once it is up to date: no schema goes back under a running service.
            pending = [] if self._current else self._pending()
            self._current = not pending
        except LockstepError as error:
            return Health(status="unavailable", checks={**checks, "database": error.message})
        checks["database"] = f"needs: lockstep migrate ({', '.join(pending)})" if pending else "ok"
        if pending:
            return Health(status="unavailable", checks=checks)
        try:
            checks["scheduler"] = self._scheduler()
        except LockstepError as error:
            return Health(status="unavailable", checks={**checks, "database": error.message})
        return Health(status="ok" if set(checks.values()) == {"ok"} else "degraded", checks=checks)

    def _scheduler(self) -> str:
        seconds = self._pass_seconds()
        if seconds is not None and seconds <= self._outage_seconds:
            return "ok"
        silent = "has not made a pass yet" if seconds is None else f"made its last pass {seconds:.0f} s ago"
        return f"{silent}; jobs are accepted and start once it does"
