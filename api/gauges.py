"""Gauges read from the databases. Refreshed at most once per second, with a timeout.

A caller gets a result within two seconds; a database that hangs is reported as unavailable. A
separate thread runs the refresh. Concurrent callers wait for the same refresh, and only one runs at
a time.

Not here: the SQL (``storage.control.gauges``), the Prometheus page (``api.telemetry``).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

import structlog

from lockstep.api.jobs.views import node_state
from lockstep.storage.control import agreed_timings, gauges
from lockstep.storage.control.gauges import ControlGauges
from lockstep.storage.db.database import Database

REMEMBER_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 2.0
"""Timeout of a caller. Prometheus itself gives up after ten seconds, without any result."""
STATES: Final = ("ready", "draining", "quarantined", "leaving", "lost")

log = structlog.get_logger("api.gauges")


@dataclass(frozen=True)
class GaugeValues:
    """Result of one refresh."""

    control: ControlGauges
    """Gauges of the jobs database, among them the age of the oldest queued job. A gauge that needs
    only SQL belongs there."""
    nodes: dict[str, int]
    """Number of nodes by state."""
    node_silence_seconds: float
    """Longest time since the last heartbeat, of nodes neither lost nor leaving; 0 without one."""
    lease_oldest_seconds: float
    """Seconds since the renewal of the least recently renewed lease; 0 without leases."""
    ingest_lag_seconds: float
    """Longest time since the newest point, of the running jobs; 0 when none is running."""


class ServiceGauges:
    """Cache of the last refresh, shared by all callers.

    Parameters
    ----------
    clock : callable
        Monotonic seconds.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic):
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        self._refreshing: Future[GaugeValues | None] | None = None
        self._refreshed_at = 0.0

    def read(self) -> GaugeValues | None:
        """Return the current or recent gauges; None while the databases do not answer."""
        with self._lock:
            reading = self._refreshing
            if reading is None or (
                reading.done() and self._clock() - self._refreshed_at > REMEMBER_SECONDS
            ):
                reading = self._refreshing = Future()
                # A daemon thread: a database that hangs must not prevent the process from exiting.
                threading.Thread(
                    target=self._refresh_in_thread, args=(reading,), name="gauges", daemon=True
                ).start()
        try:
            return reading.result(timeout=PATIENCE_SECONDS)
        except TimeoutError:
            return None

    def _refresh_in_thread(self, reading: Future[GaugeValues | None]) -> None:
        found: GaugeValues | None = None
        try:
            found = self._compute()
        except Exception as error:  # noqa: BLE001 -- reported as unavailable
            log.warning(
                "the gauges cannot be read from the databases", error=str(error).partition("\n")[0]
            )
        self._refreshed_at = self._clock()
        reading.set_result(found)

    def _compute(self) -> GaugeValues:
        with self._database.read_jobs() as session:
            control = gauges.control(session)
            lease_seconds = agreed_timings.read(session).lease_seconds
        with self._database.read_series() as session:
            ages = gauges.newest_point_seconds(session, list(control.running))
        states = Counter(dict.fromkeys(STATES, 0))
        silence = 0.0
        for node in control.nodes:
            state = node_state(node, now=control.at, lease_seconds=lease_seconds)
            states[state] += 1
            if state not in {"lost", "leaving"}:
                silence = max(silence, control.at - node.seen_at)
        left = control.lease_seconds_left
        # An attempt that has just started has no points, or points of the previous attempt.
        lags = (min(ran, ages.get(job_id, ran)) for job_id, ran in control.running.items())
        return GaugeValues(
            control=control,
            nodes=dict(states),
            node_silence_seconds=silence,
            lease_oldest_seconds=0.0 if left is None else max(0.0, lease_seconds - left),
            ingest_lag_seconds=max(lags, default=0.0),
        )
