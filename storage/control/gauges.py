"""Statements behind the gauges of the service: few and short, independent of the history's size.

They skip ended jobs, whose number grows. Ages are computed on the database's clock.

Not here: the schedule of the reads, and the names of the gauges (``api.gauges``,
``api.telemetry``).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session

from lockstep.domain.life.lifecycle import TERMINAL, AttemptState, JobState
from lockstep.storage.attempts.endings import LIVE
from lockstep.storage.attempts.nodes import is_there
from lockstep.storage.control import scheduler_lease
from lockstep.storage.db.clock import db_now, now
from lockstep.storage.db.series_tables import SeriesLatestRow
from lockstep.storage.db.tables import AssignmentRow, AttemptRow, DeviceRow, JobRow, NodeRow

RUNNING_MAX: Final = 500
"""Running jobs whose newest point is read, the oldest of them."""
NODES_MAX: Final = 5_000


@dataclass(frozen=True)
class ControlGauges:
    """Gauges of the jobs database at one moment."""

    at: float
    """The database's clock."""
    jobs: dict[JobState, int]
    """Jobs that have not ended, by state."""
    queue_oldest_seconds: float
    """Since the oldest queued job was submitted; 0 when none is queued."""
    leases: int
    """Of assignments that have not ended."""
    lease_seconds_left: float | None
    """Until the first of them runs out; below zero when it has. None when there is none."""
    nodes: list[NodeRow]
    """Without their devices."""
    devices_free: int
    devices_held: int
    cycle_seconds: float | None
    """Since the scheduler's last cycle ended; None when there never was one."""
    running: dict[str, float]
    """For how many seconds each running job's attempt has been running."""


def control(session: Session) -> ControlGauges:
    """The jobs database's part."""
    at = now(session)
    jobs, oldest = _jobs(session)
    lease = select(func.count(), func.min(AssignmentRow.lease_expires_at)).where(
        AssignmentRow.state.in_(LIVE)
    )
    leases, expires_at = session.execute(lease).one()
    held = DeviceRow.assignment_id.is_not(None)
    present = select(held, func.count()).where(DeviceRow.present).group_by(held)
    devices = {bool(is_held): count for is_held, count in session.execute(present)}
    return ControlGauges(
        at=at,
        jobs=jobs,
        queue_oldest_seconds=0.0 if oldest is None else max(0.0, at - oldest),
        leases=leases,
        lease_seconds_left=None if expires_at is None else expires_at - at,
        nodes=list(session.scalars(select(NodeRow).where(is_there()).limit(NODES_MAX))),
        devices_free=devices.get(False, 0),
        devices_held=devices.get(True, 0),
        cycle_seconds=scheduler_lease.silent_seconds(session),
        running=_running(session, at),
    )


def _jobs(session: Session) -> tuple[dict[JobState, int], float | None]:
    """Jobs by state, and when the oldest queued one was submitted.

    Counted in the index alone; ids grow with time, so the smallest is the oldest.
    """
    alive = [state for state in JobState if state not in TERMINAL]
    statement = (
        select(JobRow.state, func.count(), func.min(JobRow.id))
        .where(JobRow.state.in_(alive))
        .group_by(JobRow.state)
    )
    found = {state: (count, first) for state, count, first in session.execute(statement)}
    queued = found.get(JobState.QUEUED)
    oldest = None
    if queued is not None:
        oldest = session.execute(
            select(JobRow.created_at).where(JobRow.id == queued[1])
        ).scalar_one_or_none()
    return {state: found[state][0] if state in found else 0 for state in alive}, oldest


def _running(session: Session, at: float) -> dict[str, float]:
    statement = (
        select(JobRow.id, AttemptRow.running_at)
        .join(
            AttemptRow,
            and_(AttemptRow.job_id == JobRow.id, AttemptRow.number == JobRow.attempt_count),
        )
        .where(JobRow.state == JobState.RUNNING, AttemptRow.state == AttemptState.RUNNING)
        .order_by(JobRow.id)
        .limit(RUNNING_MAX)
    )
    return {
        job_id: max(0.0, at - since)
        for job_id, since in session.execute(statement)
        if since is not None
    }


def newest_point_seconds(session: Session, job_ids: Collection[str]) -> dict[str, float]:
    """Seconds since the newest stored point of each of the jobs, by its node's clock.

    One without points is missing.

    The agent measures its node every few seconds while an attempt runs, so that a running job
    always has new ones.
    """
    if not job_ids:
        return {}
    at = db_now()
    statement = (
        select(SeriesLatestRow.job_id, at - func.max(SeriesLatestRow.time))
        .where(SeriesLatestRow.job_id.in_(job_ids))
        .group_by(SeriesLatestRow.job_id)
    )
    return {job_id: max(0.0, seconds) for job_id, seconds in session.execute(statement)}
