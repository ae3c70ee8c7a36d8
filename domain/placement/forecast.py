"""Predicted starts of queued jobs, if running jobs continue at their speed and no job is submitted.

The placement itself is evaluated at each moment at which devices are expected to become free, so
the prediction follows the scheduler's rules. The duration of a job that has not run is unknown; a
start that depends on it has no estimate.

Not here: the remaining time of running jobs (``api.jobs.estimates``), the decision itself
(``domain.placement.decide``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Final

from lockstep.domain.placement.decide import place, turn
from lockstep.domain.placement.requests import Node, Placed, PlacementRequest

REQUESTS_MAX: Final = 200
"""Limit of evaluated jobs, from the front of the queue."""
MOMENTS_MAX: Final = 100
"""At which devices become free, or a backoff ends. Each costs one placement."""


@dataclass(frozen=True)
class Release:
    """Devices that are held now and will be free."""

    at: float
    """Seconds since the epoch; past times count as now."""
    devices: frozenset[tuple[str, int]]
    """(node name, device index)"""


def starts(
    requests: Iterable[PlacementRequest],
    nodes: Sequence[Node],
    releases: Iterable[Release],
    *,
    now: float,
) -> dict[str, float]:
    """Return the predicted start of each job, in seconds since the epoch.

    Jobs without an estimate are missing.

    Parameters
    ----------
    requests : iterable of PlacementRequest
        All queued jobs.
    nodes : sequence of Node
        All registered nodes; nodes that are not ready are assumed to stay so.
    releases : iterable of Release
        One for each running job with a predicted end. Devices of other running jobs are assumed to
        stay held.
    now : float
        Seconds since the epoch.
    """
    waiting = {request.job_id: request for request in nsmallest(REQUESTS_MAX, requests, key=turn)}
    freed = [(max(now, release.at), release.devices) for release in releases]
    moments = sorted(
        {
            now,
            *(at for at, _ in freed),
            *(one.not_before for one in waiting.values() if one.not_before > now),
        }
    )
    started: dict[str, float] = {}
    cluster = {node.name: node for node in nodes}
    for moment in moments[:MOMENTS_MAX]:
        for at, devices in freed:
            if at == moment:
                _give_back(cluster, devices)
        for decision in place(waiting.values(), list(cluster.values()), now=moment):
            if isinstance(decision, Placed):
                started[decision.job_id] = moment
                del waiting[decision.job_id]
                for name, indices in decision.devices:
                    cluster[name] = replace(
                        cluster[name], free=cluster[name].free.difference(indices)
                    )
        if not waiting:
            break
    return started


def _give_back(cluster: dict[str, Node], devices: frozenset[tuple[str, int]]) -> None:
    for name, index in devices:
        node = cluster.get(name)
        # A device may have disappeared in the meantime.
        if node is not None and index in node.devices:
            cluster[name] = replace(node, free=node.free | {index})
