"""Remaining time of running jobs, at the speed that they report.

Not here: decisions that need it (``domain.scheduling``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from lockstep.domain.training.plan import BatchPlan
from lockstep.storage.db.series_tables import ProgressRow, SeriesLatestRow
from lockstep.storage.series import series

THROUGHPUT: Final = "throughput/samples_per_second"


def expected_ends(session: Session, plans: Mapping[str, dict[str, Any]]) -> dict[str, float]:
    """Return the expected end of each job whose speed and steps are known.

    Parameters
    ----------
    session : Session
        Of the series database.
    plans : mapping of job id to its batch plan
        Of running jobs.

    Returns
    -------
    dict of job id to seconds since the epoch
    """
    if not plans:
        return {}
    rows = series.progress(session, plans)
    speeds = select(SeriesLatestRow.job_id, SeriesLatestRow.value).where(
        SeriesLatestRow.job_id.in_(list(rows)), SeriesLatestRow.name == THROUGHPUT
    )
    speed = {row.job_id: row.value for row in session.execute(speeds)}
    found = {}
    for job_id, row in rows.items():
        left = seconds_left(row, BatchPlan.model_validate(plans[job_id]), speed.get(job_id))
        if left is not None and row.time is not None:
            found[job_id] = row.time + left
    return found


def seconds_left(
    row: ProgressRow, plan: BatchPlan | None, samples_per_second: float | str | None
) -> float | None:
    """Return the remaining seconds at the current speed.

    The attempt's mean speed is used where the current speed is not reported, or no number. None
    without a known speed or a planned number of steps.
    """
    if plan is None or plan.steps is None:
        return None
    steps_left = max(0, plan.steps - row.step)
    # A string is a non-finite value.
    if isinstance(samples_per_second, float) and samples_per_second > 0:
        return steps_left * plan.batch_size / samples_per_second
    if row.time is None or row.first_time is None or row.first_step is None:
        return None
    seconds = row.time - row.first_time
    steps = row.step - row.first_step
    return steps_left * seconds / steps if steps > 0 and seconds > 0 else None
