"""Readiness of the service, looked at no more than once in two seconds, however many ask.

Ready means that a submit would be accepted: both databases answer and their schema is not older
than this version's. A broker that is away, a scheduler that made no pass lately, a store that
cannot be written and a newer schema are reported and do not make the service unready: jobs are
accepted, and an api that is taken out of its proxy for them would only hide what is there.

A driver's message names hosts, ports and roles, and a store's its place. So there are two texts of
each check: one for everybody, and the details for callers with a token and for the log.

Not here: the health of nodes (``api.routes.nodes``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from lockstep.domain.errors import LockstepError
from lockstep.domain.views import Health
from lockstep.storage.db.database import Database
from lockstep.storage.db.schema import Mismatch

REMEMBER_SECONDS: Final = 2.0
"""Checks are not made more often, however many ask: this address is open."""
NO_ANSWER: Final = "does not answer; callers with a token and the api's log get the reason"
NO_STORE: Final = (
    "cannot be used: code is not accepted and checkpoints are not stored; "
    "callers with a token and the api's log get the reason"
)

log = structlog.get_logger("api")


@dataclass(frozen=True)
class Seen:
    """What one look found."""

    health: Health
    """For everybody."""
    details: Mapping[str, str] = field(default_factory=dict)
    """Of checks, by name, what only callers with a token may read."""

    def in_full(self) -> Health:
        """For callers with a token."""
        return self.health.model_copy(update={"checks": {**self.health.checks, **self.details}})


class Readiness:
    """The last look, shared by all who ask.

    Parameters
    ----------
    database : Database
    mismatch : callable
        Compares the databases' schema with this version's; None when they agree.
    store_trouble : callable
        Returns why the store cannot be written; empty when it can. Must not hang.
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
        mismatch: Callable[[], Mismatch | None],
        store_trouble: Callable[[], str],
        broker_answers: Callable[[], bool],
        pass_seconds: Callable[[], float | None],
        outage_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._database = database
        self._mismatch = mismatch
        self._store_trouble = store_trouble
        self._broker_answers = broker_answers
        self._pass_seconds = pass_seconds
        self._outage_seconds = outage_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._details: Mapping[str, str] = {}
        self._seen: tuple[float, Seen] | None = None

    def look(self) -> Seen:
        """The state now, or as of a moment ago."""
        # Only the very first look is waited for: with the database away a look takes seconds, and everybody who waited
        # for it would hold a thread.
        if not self._lock.acquire(blocking=self._seen is None):
            assert self._seen is not None
            return self._seen[1]
        try:
            if self._seen is None or self._clock() - self._seen[0] > REMEMBER_SECONDS:
                seen = self._look()
                self._log(seen.details)
                self._seen = (self._clock(), seen)
            return self._seen[1]
        finally:
            self._lock.release()

    def _look(self) -> Seen:
        checks = {
            "broker": "ok" if self._broker_answers() else "does not answer; jobs are accepted and start later",
            "database": "ok",
            "store": "ok",
        }
        details = {}
        if trouble := self._store_trouble():
            checks["store"], details["store"] = NO_STORE, trouble
        try:
            self._database.ping()
            differs = self._mismatch()
            if differs is not None:
                checks["database"] = f"{differs.message}; {differs.next_step}"
            if differs is None or differs.newer:
                checks["scheduler"] = self._scheduler()
        except LockstepError as error:
            checks["database"], details["database"] = NO_ANSWER, error.message
        if "scheduler" not in checks:
            return Seen(Health(status="unavailable", checks=checks), details)
        return Seen(Health(status="ok" if set(checks.values()) == {"ok"} else "degraded", checks=checks), details)

    def _log(self, details: Mapping[str, str]) -> None:
        """Log each trouble once while it lasts. Numbers in it, such as seconds, may change."""
        for name in details.keys() - self._details.keys():
            log.warning("a part of the service is not ready", part=name, why=details[name])
        for name in self._details.keys() - details.keys():
            log.info("a part of the service is ready again", part=name)
        self._details = details

    def _scheduler(self) -> str:
        seconds = self._pass_seconds()
        if seconds is not None and seconds <= self._outage_seconds:
            return "ok"
        silent = "has not made a pass yet" if seconds is None else f"made its last pass {seconds:.0f} s ago"
        return f"{silent}; jobs are accepted and start once it does"
