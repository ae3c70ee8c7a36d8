"""Predicted start times of queued jobs, from the progress of the running ones.

Every dashboard with a queue requests them, and a forecast is cached for a few seconds. Times are
rounded: a value that changed with every request would prevent 304 responses.

Not here: the forecast (``domain.scheduling.forecast``), the remaining time of one running job
(``storage.series.remaining``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lockstep.domain.scheduling.decide import rounded
from lockstep.domain.scheduling.forecast import starts
from lockstep.storage.control import agreed_timings, snapshots
from lockstep.storage.control.averages import Averages
from lockstep.storage.db.database import Database
from lockstep.system.recent import Recent

REMEMBER_SECONDS: Final = 5.0


class Estimates:
    """Cache of the last forecast, shared by all callers.

    Parameters
    ----------
    database : Database
    averages : Averages
    """

    def __init__(self, database: Database, averages: Averages) -> None:
        self._database = database
        self._averages = averages
        self._recent: Recent[Mapping[str, float]] = Recent()

    def starts(self) -> Mapping[str, float]:
        """Return the predicted start of queued jobs by job id, in seconds since the epoch.

        Starts in the past and jobs without a prediction are left out.
        """
        return self._recent.get(self._forecast, seconds=REMEMBER_SECONDS)

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
