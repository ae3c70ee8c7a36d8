"""Predicted start times of queued jobs, from the progress of the running ones.

Every dashboard with a queue requests them, and a forecast is cached for a few seconds. Times are
rounded, more coarsely the farther away they are: they are not more precise than that, and a value
that changed with every request would prevent 304 responses.

Not here: the forecast (``domain.placement.forecast``), the remaining time of one running job
(``api.jobs.views.seconds_left``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from lockstep.api.jobs.views import seconds_left
from lockstep.domain.errors import LockstepError
from lockstep.domain.placement.forecast import Release, starts
from lockstep.domain.training.plan import BatchPlan
from lockstep.storage.control import agreed_timings, scheduling
from lockstep.storage.db.clock import now
from lockstep.storage.db.database import Database
from lockstep.storage.series import series

REMEMBER_SECONDS: Final = 5.0
_ROUNDING: Final = ((600.0, 60.0), (3_600.0, 300.0), (86_400.0, 900.0))
"""Pairs (upper limit of the distance, rounding), in seconds; beyond the last, whole hours."""


class Estimates:
    """Cache of the last forecast, shared by all callers.

    Parameters
    ----------
    database : Database
    clock : callable
        Monotonic seconds.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic):
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        self._made_at: float | None = None
        self._starts: Mapping[str, float] = {}

    def starts(self) -> Mapping[str, float]:
        """Return the predicted start of queued jobs by job id, in seconds since the epoch.

        Starts in the past and jobs without a prediction are left out.
        """
        with self._lock:
            if self._made_at is None or self._clock() - self._made_at > REMEMBER_SECONDS:
                self._starts = self._forecast()
                self._made_at = self._clock()
            return self._starts

    def _forecast(self) -> Mapping[str, float]:
        with self._database.read_jobs() as session:
            queue = scheduling.queue(session)
            if not queue:
                return {}
            lease_seconds = agreed_timings.read(session).lease_seconds
            cluster = scheduling.cluster(session, lease_seconds=lease_seconds)
            at = now(session)
        expected = starts(
            (job.request() for job in queue), cluster, releases(self._database, at=at), now=at
        )
        return {job_id: rounded(start, now=at) for job_id, start in expected.items() if start > at}


def releases(database: Database, *, at: float) -> list[Release]:
    """Return the predicted release times of the held devices, where known.

    ``at`` is the current time, in seconds since the epoch.
    """
    with database.read_jobs() as session:
        held = scheduling.held(session)
        plans = scheduling.plans(session, {one.job_id for one in held if one.is_live})
    try:
        with database.read_series() as session:
            progress = series.progress(session, plans)
            latest = series.latest(session, progress)
    except LockstepError:
        return []  # the queue remains readable without the series database
    ends: dict[str, float] = {}
    for job_id, plan in plans.items():
        row = progress.get(job_id)
        if row is None or row.time is None:
            continue
        left = seconds_left(row, BatchPlan.model_validate(plan), latest.get(job_id, {}))
        if left is not None:
            ends[job_id] = row.time + left
    found: dict[float, set[tuple[str, int]]] = {}
    for one in held:
        end = (
            ends.get(one.job_id) if one.is_live else at
        )  # devices of an attempt that has ended are about to be released
        if end is not None:
            found.setdefault(end, set()).add((one.node_name, one.device_index))
    return [Release(end, frozenset(devices)) for end, devices in found.items()]


def rounded(start: float, *, now: float) -> float:
    """Round a future time up, to a multiple that depends on its distance (``_ROUNDING``)."""
    ahead = start - now
    to = next((to for less, to in _ROUNDING if ahead < less), 3_600.0)
    return -(-start // to) * to
