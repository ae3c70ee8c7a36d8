"""When queued jobs would start, if what runs goes on as fast as it does and nobody submits anything more.

The placement itself is asked again and again, at each moment at which devices are expected to become free: so what is
forecast is what the scheduler would do. How long a job runs that has not run yet is not known, and what cannot be told
without knowing it has no estimate, rather than a wrong one.

Not here: how long a running job still takes (``api.jobs.estimates``), and the decision itself (``domain.placement.decide``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Final

from lockstep.domain.placement.decide import Node, Placed, PlacementRequest, place, turn

REQUESTS_MAX: Final = 200
"""The first of the queue: nobody plans by the estimate of the five-hundredth."""
MOMENTS_MAX: Final = 100
"""At which devices become free, or a backoff ends. Each costs one placement."""


@dataclass(frozen=True)
class Release:
    """Devices that are held now and will be free."""

    at: float
    """Seconds since the epoch; what is past counts as now."""
    devices: frozenset[tuple[str, int]]
    """(node name, device index)"""


def starts(
    requests: Iterable[PlacementRequest], nodes: Sequence[Node], releases: Iterable[Release], *, now: float
) -> dict[str, float]:
    """When each job would start, in seconds since the epoch; jobs of which that cannot be told are missing.

    Parameters
    ----------
    requests : iterable of Request
        All queued jobs.
    nodes : sequence of Node
        All registered nodes; those that are not ready are taken to stay so.
    releases : iterable of Release
        One for each running job whose end is known. Devices that are in none are held for ever.
    now : float
        Seconds since the epoch.
    """
    waiting = {request.job_id: request for request in nsmallest(REQUESTS_MAX, requests, key=turn)}
    freed = [(max(now, release.at), release.devices) for release in releases]
    moments = sorted(
        {now, *(at for at, _ in freed), *(one.not_before for one in waiting.values() if one.not_before > now)}
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
                    cluster[name] = replace(cluster[name], free=cluster[name].free.difference(indices))
        if not waiting:
            break
    return started


def _give_back(cluster: dict[str, Node], devices: frozenset[tuple[str, int]]) -> None:
    for name, index in devices:
        node = cluster.get(name)
        # A device that disappeared meanwhile is nobody's.
        if node is not None and index in node.devices:
            cluster[name] = replace(node, free=node.free | {index})
