"""When queued jobs are likely to start, from how far the running ones are.

Asked by every dashboard that shows a queue, so a forecast is remembered for a few seconds. What is told is rounded, the
more the farther away it is: nobody knows better, and an answer that changed by a second with each look would never be a
304.

Not here: the forecast itself (``domain.placement.forecast``), and how long one running job still takes (``api.jobs.views.seconds_left``).
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
from lockstep.storage.control import scheduling
from lockstep.storage.db.clock import now
from lockstep.storage.db.database import Database
from lockstep.storage.series import series

REMEMBER_SECONDS: Final = 5.0
_ROUNDING: Final = ((600.0, 60.0), (3_600.0, 300.0), (86_400.0, 900.0))
"""(less far away than this, to whole multiples of this), in seconds; beyond, to hours."""


class Estimates:
    """The last forecast, shared by all who ask.

    Parameters
    ----------
    database : Database
    lease_seconds : float
        A node that was silent for longer is not counted on.
    clock : callable
        Monotonic seconds.
    """

    def __init__(self, database: Database, lease_seconds: float, clock: Callable[[], float] = time.monotonic):
        self._database = database
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._made_at: float | None = None
        self._starts: Mapping[str, float] = {}

    def starts(self) -> Mapping[str, float]:
        """Seconds since the epoch by id of queued job; only what lies ahead, and only where it can be told."""
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
            cluster = scheduling.cluster(session, lease_seconds=self._lease_seconds)
            at = now(session)
        expected = starts((job.request() for job in queue), cluster, releases(self._database, at=at), now=at)
        return {job_id: rounded(start, now=at) for job_id, start in expected.items() if start > at}


def releases(database: Database, *, at: float) -> list[Release]:
    """When the devices that are held will be free, as far as that is known; ``at`` is now."""
    with database.read_jobs() as session:
        held = scheduling.held(session)
        plans = scheduling.plans(session, {one.job_id for one in held if one.is_live})
    try:
        with database.read_series() as session:
            progress = series.progress(session, plans)
            latest = series.latest(session, progress)
    except LockstepError:
        return []  # a queue can be read while points cannot
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
        )  # of an attempt that has ended, what is held is free in a moment
        if end is not None:
            found.setdefault(end, set()).add((one.node_name, one.device_index))
    return [Release(end, frozenset(devices)) for end, devices in found.items()]


def rounded(start: float, *, now: float) -> float:
    """A moment that lies ahead, up to the next multiple of what its distance deserves."""
    ahead = start - now
    to = next((to for less, to in _ROUNDING if ahead < less), 3_600.0)
    return -(-start // to) * to
