"""Readiness of the service, checked at most once in two seconds.

Ready means that a submit would be accepted: both databases answer, the jobs database accepts
writes and its disk has space, and the schema is not older than this version's. An unavailable
broker, a scheduler without a recent reconcile cycle, a store that is not writable and a newer
schema are reported, but the service stays ready: jobs are still accepted, and removing the api from
its proxy would only hide the existing data.

Messages of a database driver contain hosts, ports and roles, and those of the store its location.
Each check therefore has two texts: a public one, and details for the log and for callers with a
token.

Not here: the health of nodes (``api.routes.nodes``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.views import Health
from lockstep.storage.db.database import Database
from lockstep.storage.db.driver_errors import ReadOnlyError
from lockstep.storage.db.schema import Mismatch

REMEMBER_SECONDS: Final = 2.0
"""Lifetime of a result. Bounds the work that unauthenticated callers can cause."""
NO_ANSWER: Final = (
    "does not answer; the reason is in the log of the api and in responses to requests with a token"
)
NO_STORE: Final = (
    "not usable: code is not accepted and checkpoints are not stored; the reason is in the log "
    "of the api and in responses to requests with a token"
)

log = structlog.get_logger("api")


@dataclass(frozen=True)
class ReadinessResult:
    """Result of one check."""

    health: Health
    """Public part."""
    details: Mapping[str, str] = field(default_factory=dict)
    """Details by name of the check, for callers with a token only."""

    def in_full(self) -> Health:
        """Return the health with details, for callers with a token."""
        return self.health.model_copy(update={"checks": {**self.health.checks, **self.details}})


class Readiness:
    """Cache of the last check, shared by all callers.

    Parameters
    ----------
    mismatch : callable
        Compares the databases' schema with this version's; None when they agree.
    store_trouble : callable
        Returns the reason why the store is not writable; empty when it is. Must not hang.
    cycle_seconds : callable
        Returns the seconds since a scheduler last finished a reconcile cycle, None before the
        first, and the seconds beyond which that is reported.
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
        cycle_seconds: Callable[[], tuple[float | None, float]],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._database = database
        self._mismatch = mismatch
        self._store_trouble = store_trouble
        self._broker_answers = broker_answers
        self._cycle_seconds = cycle_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._details: Mapping[str, str] = {}
        self._last: tuple[float, ReadinessResult] | None = None

    def check(self) -> ReadinessResult:
        """Return the current or a recent result."""
        # Only the first check blocks its callers. Without the database a check takes seconds, and
        # every waiting caller would hold a thread.
        if not self._lock.acquire(blocking=self._last is None):
            assert self._last is not None
            return self._last[1]
        try:
            if self._last is None or self._clock() - self._last[0] > REMEMBER_SECONDS:
                found = self._check()
                self._log(found.details)
                self._last = (self._clock(), found)
            return self._last[1]
        finally:
            self._lock.release()

    def _check(self) -> ReadinessResult:
        checks = {
            "broker": "ok"
            if self._broker_answers()
            else "does not answer; jobs are accepted and start later",
            "database": "ok",
            "store": "ok",
        }
        details = {}
        if trouble := self._store_trouble():
            checks["store"], details["store"] = NO_STORE, trouble
        try:
            self._database.ping()
            differs = self._mismatch()
            self._database.check_room()
            if differs is not None:
                checks["database"] = f"{differs.message}; {differs.next_step}"
            if differs is None or differs.newer:
                checks["scheduler"] = self._scheduler()
        except ReadOnlyError as error:
            checks["database"] = error.message
        except LockstepError as error:
            if error.code is ErrorCode.STORAGE_FULL:
                checks["database"] = f"full: {error.message}"
            else:
                checks["database"], details["database"] = NO_ANSWER, error.message
        if "scheduler" not in checks:
            return ReadinessResult(Health(status="unavailable", checks=checks), details)
        return ReadinessResult(
            Health(status="ok" if set(checks.values()) == {"ok"} else "degraded", checks=checks),
            details,
        )

    def _log(self, details: Mapping[str, str]) -> None:
        """Log each problem once while it lasts, even if numbers in its text change."""
        for name in details.keys() - self._details.keys():
            log.warning("a component is not ready", part=name, why=details[name])
        for name in self._details.keys() - details.keys():
            log.info("a component is ready again", part=name)
        self._details = details

    def _scheduler(self) -> str:
        seconds, outage_seconds = self._cycle_seconds()
        if seconds is not None and seconds <= outage_seconds:
            return "ok"
        silent = (
            "has not completed a cycle yet"
            if seconds is None
            else f"completed its last cycle {seconds:.0f} s ago"
        )
        return f"{silent}; jobs are accepted and start after its next cycle"
