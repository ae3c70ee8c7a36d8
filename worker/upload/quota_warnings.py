"""Warnings about series beyond the limits of a job, once per limit.

Not here: the limits (``domain.limits``) and their enforcement (``storage.series.series``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lockstep.domain import limits
from lockstep.storage.series.series import OverLimit


class QuotaWarnings:
    """Warn about points that an attempt's append omitted.

    Parameters
    ----------
    warn : callable
        Receives one sentence for the job's page.
    """

    def __init__(self, warn: Callable[[str], None]):
        self._warn = warn
        self._told: set[str] = set()

    def tell(self, noted: Iterable[OverLimit]) -> None:
        """Report omitted points, at the first excess of each limit."""
        for left_out in noted:
            if left_out.names:
                self._once(
                    f"metrics limited: a job can have at most {left_out.names_max:,} names; "
                    f"points of other names, such as {left_out.names[0]!r}, are dropped"
                )
            if left_out.job_is_full:
                self._once(
                    f"metrics limited: the job has {limits.METRIC_POINTS_PER_JOB_MAX:,} points, "
                    "the limit for a job; of further points only the newest value of each series "
                    "is shown"
                )

    def _once(self, message: str) -> None:
        what = message.partition(";")[0]
        if what not in self._told:
            self._told.add(what)
            self._warn(message)
