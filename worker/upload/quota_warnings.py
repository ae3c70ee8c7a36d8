"""Saying that a job's series have outgrown what is kept of a job, once for each limit.

Not here: the limits (``domain.limits``) and their keeping (``storage.series.series``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lockstep.domain import limits
from lockstep.storage.series.series import LeftOut


class Room:
    """Warns of what an attempt's append left out.

    Parameters
    ----------
    warn : callable
        Takes one sentence for the job's page.
    """

    def __init__(self, warn: Callable[[str], None]):
        self._warn = warn
        self._told: set[str] = set()

    def tell(self, noted: Iterable[LeftOut]) -> None:
        """Say what appends have left out, of each limit the first time."""
        for left_out in noted:
            if left_out.names:
                self._once(
                    f"metrics limited: a job has room for {left_out.names_max:,} names; points of further "
                    f"ones, such as {left_out.names[0]!r}, are left out"
                )
            if left_out.job_is_full:
                self._once(
                    f"metrics limited: the job has {limits.METRIC_POINTS_PER_JOB_MAX:,} points, as many as are kept of "
                    "one; of further ones only each series' newest value is shown"
                )

    def _once(self, message: str) -> None:
        what = message.partition(";")[0]
        if what not in self._told:
            self._told.add(what)
            self._warn(message)
