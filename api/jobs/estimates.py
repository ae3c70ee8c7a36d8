"""Predicted start times of queued jobs, from the progress of the running ones.

Every dashboard with a queue requests them, and a forecast is cached for a few seconds. Times are
rounded: a value that changed with every request would prevent 304 responses.

Not here: the forecast (``domain.scheduling.forecast``), the remaining time of one running job
(``storage.series.remaining``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from lockstep.domain.scheduling.decide import rounded
from lockstep.domain.scheduling.forecast import starts
from lockstep.storage.control import agreed_timings, snapshots
from lockstep.storage.control.averages import Averages
from lockstep.storage.db.database import Database

REMEMBER_SECONDS: Final = 5.0


class Estimates:
    """Cache of the last forecast, shared by all callers.

    Parameters
    ----------
    database : Database
    averages : Averages
    clock : callable
        Monotonic seconds.
    """

    def __init__(
        self,
        database: Database,
        averages: Averages,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._averages = averages
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
            timings = agreed_timings.read(session)
            rows = snapshots.read(session, timings, average=self._averages.read)
        if not rows.queue:
            return {}
        found = starts(rows.state(snapshots.expected(self._database, rows)))
        return {
            job_id: rounded(start, now=rows.at)
            for job_id, start in found.items()
            if start > rows.at
        }
