"""Ranks whose device is held and not used, by the samples of the node agents.

Only ranks whose newest sample is low have their last points read. The pages apply the same rule to
the points that they draw.

Not here: samples (``worker.devices.sampling``), other reads of points
(``storage.series.series_query``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from lockstep.domain.kinds.devices import DEVICES
from lockstep.storage.db.dialects import table_of
from lockstep.storage.db.series_tables import SeriesChunkRow, SeriesLatestRow, of_kind
from lockstep.storage.series.packing import unpack
from lockstep.storage.series.points import Points

IDLE_PERCENT: Final = 5.0
IDLE_SECONDS: Final = 300.0
"""Pauses for data, evaluation or a checkpoint are shorter."""
_BETWEEN_SECONDS: Final = 60.0
"""More than the time between two samples: the first one of the range may be in an older chunk."""


def idle_ranks(session: Session, attempts: Mapping[str, tuple[int, str]]) -> Counter[str]:
    """Return the number of ranks of each job that were idle for ``IDLE_SECONDS``.

    Parameters
    ----------
    session : Session
    attempts : mapping of job id to (int, str)
        Number of the live attempt, and kind of its devices.
    """
    newest = table_of(SeriesLatestRow).c
    low = (
        select(newest.job_id, newest.name, newest.attempt, newest.time)
        .where(newest.job_id.in_(list(attempts)), newest.value < IDLE_PERCENT)
        .where(of_kind(newest.name, system=True))
    )
    wanted = {
        (row.job_id, row.name): row.time
        for row in session.execute(low)
        if _is_use(row.name, *attempts[row.job_id], row.attempt)
    }
    if not wanted:
        return Counter()
    chunks = table_of(SeriesChunkRow).c
    since = min(wanted.values()) - IDLE_SECONDS - _BETWEEN_SECONDS
    recent = (
        select(chunks.job_id, chunks.name, chunks.attempt, chunks.points)
        .where(chunks.job_id.in_({job_id for job_id, _ in wanted}))
        .where(chunks.name.in_({name for _, name in wanted}), chunks.end_time >= since)
        .order_by(chunks.job_id, chunks.name, chunks.seq)
    )
    found: dict[tuple[str, str], Points] = {}
    for row in session.execute(recent):
        key = row.job_id, row.name
        if key in wanted and row.attempt == attempts[row.job_id][0]:
            found.setdefault(key, Points()).extend(unpack(row.points))
    return Counter(
        job_id for (job_id, _), points in found.items() if idle_seconds(points) >= IDLE_SECONDS
    )


def idle_seconds(points: Points) -> float:
    """Return the time up to the last point for which every value was low. NaN is not low."""
    first = last = len(points)
    while first > 0 and points.values[first - 1] < IDLE_PERCENT:
        first -= 1
    return 0.0 if first == last else points.times[last - 1] - points.times[first]


def _is_use(name: str, attempt: int, kind: str, of_attempt: int) -> bool:
    row = DEVICES.get(kind)  # A newer agent may have another kind, whose series are unknown here.
    return (
        row is not None
        and attempt == of_attempt
        and "/rank" in name
        and name.endswith(f"/{row.use_metric}")
    )
