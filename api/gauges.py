"""How the service stands, by its databases: asked at most once a second, and never waited for for long.

Whoever asks gets an answer within two seconds: a database that hangs counts as one that is away. The look is made by a
thread of its own, which all who ask meanwhile wait for; nobody starts a second one while it lasts.

Not here: the statements (``storage.control.gauges``), and the page on which they stand (``api.telemetry``).
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
from lockstep.storage.control import gauges
from lockstep.storage.control.gauges import ControlFigures
from lockstep.storage.db.database import Database

REMEMBER_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 2.0
"""Prometheus itself gives up after ten, and then knows less than "away"."""
STATES: Final = ("ready", "draining", "quarantined", "leaving", "lost")

log = structlog.get_logger("api.figures")


@dataclass(frozen=True)
class Seen:
    """What one look found."""

    control: ControlFigures
    nodes: dict[str, int]
    """How many, by state."""
    node_silence_seconds: float
    """The longest of the nodes that are neither lost nor leaving; 0 when there is none."""
    lease_oldest_seconds: float
    """Since the lease that was renewed longest ago was renewed; 0 when there is none."""
    ingest_lag_seconds: float
    """Since the newest point of the running job for which that is longest; 0 when none is running."""


class Figures:
    """The last look, shared by all who ask.

    Parameters
    ----------
    database : Database
    lease_seconds : float
        How long a lease lasts after its renewal.
    clock : callable
        Monotonic seconds.
    """

    def __init__(self, database: Database, lease_seconds: float, clock: Callable[[], float] = time.monotonic):
        self._database = database
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._looking: Future[Seen | None] | None = None
        self._looked_at = 0.0

    def look(self) -> Seen | None:
        """The figures as of a moment ago; None while the databases do not answer."""
        with self._lock:
            looking = self._looking
            if looking is None or (looking.done() and self._clock() - self._looked_at > REMEMBER_SECONDS):
                looking = self._looking = Future()
                # A daemon: a look at a database that hangs must not keep the service from ending.
                threading.Thread(target=self._run, args=(looking,), name="figures", daemon=True).start()
        try:
            return looking.result(timeout=PATIENCE_SECONDS)
        except TimeoutError:
            return None

    def _run(self, looking: Future[Seen | None]) -> None:
        found: Seen | None = None
        try:
            found = self._look()
        except Exception as error:  # noqa: BLE001 -- a database that is away or of another version; the page must say so, not fail
            log.warning("the databases cannot be looked at", error=str(error).partition("\n")[0])
        self._looked_at = self._clock()
        looking.set_result(found)

    def _look(self) -> Seen:
        with self._database.read_jobs() as session:
            control = gauges.control(session)
        with self._database.read_series() as session:
            ages = gauges.newest_point_seconds(session, list(control.running))
        states = Counter(dict.fromkeys(STATES, 0))
        silence = 0.0
        for node in control.nodes:
            state = node_state(node, now=control.at, lease_seconds=self._lease_seconds)
            states[state] += 1
            if state not in {"lost", "leaving"}:
                silence = max(silence, control.at - node.seen_at)
        left = control.lease_seconds_left
        # An attempt that has only begun has points of the attempt before, or none.
        lags = (min(ran, ages.get(job_id, ran)) for job_id, ran in control.running.items())
        return Seen(
            control=control,
            nodes=dict(states),
            node_silence_seconds=silence,
            lease_oldest_seconds=0.0 if left is None else max(0.0, self._lease_seconds - left),
            ingest_lag_seconds=max(lags, default=0.0),
        )
