"""Predicted starts of queued jobs, if running jobs continue at their speed and no job is submitted.

The decision itself is made at each moment at which devices are expected to become free, so the
prediction follows the scheduler's rules. A job that has not run ends by its time limit; a start
that depends on a job without one has no estimate.

Not here: the expected end of running jobs (``storage.control.scheduling``), the decision itself
(``domain.scheduling.decide``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Final

from lockstep.domain.scheduling.decide import decide
from lockstep.domain.scheduling.shares import Standing, by_age, turns
from lockstep.domain.scheduling.state import ClusterNode, ClusterState, JobRequest, Running, Start

JOBS_MAX: Final = 200
"""Limit of evaluated jobs, from the front of the queue."""
MOMENTS_MAX: Final = 100
"""At which devices become free, or a backoff ends. Each costs one decision."""


def starts(snapshot: ClusterState) -> dict[str, float]:
    """Return the predicted start of each job, in seconds since the epoch.

    Jobs without an estimate are missing. Nodes that are not ready are assumed to stay so.
    """
    waiting = {job.job_id: job for job in _front(snapshot)}
    running = {job.job_id: job for job in snapshot.running}
    nodes = {node.name: node for node in snapshot.nodes}
    moments = _moments(snapshot, waiting.values())
    found: dict[str, float] = {}
    for _ in range(MOMENTS_MAX):
        if not moments or not waiting:
            break
        now = heappop(moments)
        while moments and moments[0] == now:
            heappop(moments)
        for job in [job for job in running.values() if _is_over(job, now, snapshot.now)]:
            del running[job.job_id]
            _give_back(nodes, job)
        state = replace(
            snapshot,
            now=now,
            nodes=tuple(nodes.values()),
            queued=tuple(waiting.values()),
            running=tuple(running.values()),
        )
        plan = decide(state)
        for start in plan.starts:
            found[start.job_id] = now
            job = _started(waiting.pop(start.job_id), start, now)
            running[job.job_id] = job
            _take(nodes, job)
            if job.ends_at is not None:
                heappush(moments, job.ends_at)
        for wait in plan.waits:
            waiting[wait.job_id] = replace(waiting[wait.job_id], hold=wait.hold)
    return found


def _moments(snapshot: ClusterState, waiting: Iterable[JobRequest]) -> list[float]:
    """Return a heap of the times at which something may start: now, after ends and backoffs."""
    ends = (_end(job, snapshot.now) for job in snapshot.running)
    backoffs = (job.not_before for job in waiting if job.not_before > snapshot.now)
    moments = [snapshot.now, *(end for end in ends if end is not None), *backoffs]
    heapify(moments)
    return moments


def _front(snapshot: ClusterState) -> list[JobRequest]:
    standing = Standing.of(snapshot)
    front = [job for job in snapshot.queued if job.hold is not None]
    for job in turns([job for job in by_age(snapshot.queued) if job.hold is None], standing):
        standing.charge(job)
        front.append(job)
        if len(front) >= JOBS_MAX:
            break
    return front


def _end(job: Running, now: float) -> float | None:
    known = [end for end in (job.ends_at, job.expected_at) if end is not None]
    return max(now, min(known)) if known else None


def _is_over(job: Running, now: float, began: float) -> bool:
    end = _end(job, began)
    return end is not None and end <= now


def _started(job: JobRequest, start: Start, now: float) -> Running:
    devices = tuple((name, index) for name, indices in start.devices for index in indices)
    end = None if job.limit_seconds is None else now + job.limit_seconds
    return Running(job.job_id, job.project, job.user, devices, ends_at=end)


def _give_back(nodes: dict[str, ClusterNode], job: Running) -> None:
    for name, index in job.devices:
        node = nodes.get(name)
        # A device may have disappeared in the meantime.
        if node is not None and index in node.devices:
            nodes[name] = replace(node, free=node.free | {index})


def _take(nodes: dict[str, ClusterNode], job: Running) -> None:
    for name, index in job.devices:
        nodes[name] = replace(nodes[name], free=nodes[name].free - {index})
