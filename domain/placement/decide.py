"""Placement of queued jobs, as a pure function of the cluster's state.

Rules, in order:

1. Higher priority first, then older first.
2. A gang is placed whole or not at all, on devices of one type, on the fewest nodes; among equal
choices on the node with the fewest devices left over, to keep large groups of devices free for
large gangs.
3. A job that does not fit yet *holds* the nodes it waits for: later jobs may not take their free
devices. A stream of small jobs therefore cannot starve a large gang, and devices that it could
never use stay open to others.
4. Nodes on which a job failed for the node's own reasons are tried last.

Rule 3 holds as few nodes as the gang needs, those with the most free devices. Holding every
suitable node would leave most of a cluster idle behind one large gang. The gang still starts: while
it is first in line, the free devices of the nodes it holds only increase, and it changes nodes only
for more free devices.

Not here: storing the decision (``storage.attempts.placing.place``), which is guarded and may fail;
the schedule of decisions (``scheduler``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lockstep.domain.placement.pool import Choice, Pool, counted_noun
from lockstep.domain.placement.requests import Node, Placed, PlacementRequest, Waiting

Decision = Placed | Waiting


def nodes_asked(nodes: int | None) -> int:
    """Return ``PlacementRequest.nodes`` for the spec's ``resources.nodes``.

    A job that does not request several nodes gets one: a gang that no single node can hold waits
    with a message, instead of being spread over a network that may be a hundred times slower.
    """
    return 1 if nodes is None else nodes


def turn(request: PlacementRequest) -> tuple[int, float, str]:
    """Rule 1: the smallest goes first."""
    return -request.priority, request.created_at, request.job_id


def place(
    requests: Iterable[PlacementRequest], nodes: Sequence[Node], *, now: float
) -> list[Decision]:
    """Decide about every queued job, in queue order.

    Parameters
    ----------
    requests : iterable of Request
        All queued jobs.
    nodes : sequence of Node
        All registered nodes.
    now : float
        Seconds since the epoch, to compare with ``PlacementRequest.not_before``.
    """
    cluster = _Cluster(nodes)
    decisions: list[Decision] = []
    waiting = 0
    for request in sorted(requests, key=turn):
        if request.not_before > now:
            answer: Placed | str = (
                f"retries in {max(1, round(request.not_before - now))} s after a failure"
            )
        else:
            answer = cluster.decide(request)
        if isinstance(answer, Placed):
            decisions.append(answer)
        else:
            waiting += 1
            decisions.append(Waiting(request.job_id, waiting, answer))
    return decisions


_Shape = tuple[int, int | None, str | None, frozenset[str]]


class _Cluster:
    """All nodes during one reconcile cycle. Free capacity only decreases."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        ready = [node for node in nodes if node.ready]
        kinds = sorted({kind for node in ready for kind in node.devices.values()})
        self.pools = {kind: Pool(kind, ready) for kind in kinds}
        self.refused: dict[_Shape, str] = {}
        """Reason for which a shape of job can neither start nor hold anything. As pools only
        shrink, the next job of that shape cannot either; a long queue therefore costs one search
        per shape instead of one per job."""

    def decide(self, request: PlacementRequest) -> Placed | str:
        """Place the job or return the reason for waiting.

        Its devices are taken or held for later jobs.
        """
        shape = (request.devices, request.nodes, request.device_type, request.avoid)
        if shape in self.refused:
            return self.refused[shape]
        pools = [pool for kind, pool in self.pools.items() if request.device_type in (None, kind)]
        fits = [choice for pool in pools if (choice := pool.fit(request)) is not None]
        if fits:
            best = min(fits, key=Choice.rank)
            return Placed(request.job_id, best.pool.take(best))
        holds = [choice for pool in pools if (choice := pool.waits_for(request)) is not None]
        if holds:
            best = min(holds, key=Choice.rank)
            return best.pool.hold(best, request)
        self.refused[shape] = self._why_not(request, pools)
        return self.refused[shape]

    def _why_not(self, request: PlacementRequest, pools: list[Pool]) -> str:
        """Return the reason for holding nothing: nodes are missing or held by earlier jobs."""
        for pool in pools:
            if pool.could_serve(request):
                return f"behind job {pool.last_holder}, which needs the same devices"
        if not self.nodes:
            return "no node is registered yet"
        if not self.pools:
            registered = counted_noun(len(self.nodes), "node")
            return (
                f"no node is ready: {registered} registered, none of them ready; lockstep nodes "
                f"shows the reasons"
            )
        kind = request.device_type
        if not pools:
            return (
                f"no ready node has devices of type {kind} (available types: "
                f"{', '.join(self.pools)})"
            )
        of_type = f" of type {kind}" if kind else ""
        if request.nodes == 1:
            most = max(max(pool.capacity.values()) for pool in pools)
            return (
                f"needs {counted_noun(request.devices, 'device')}{of_type} on one node; the "
                f"largest "
                f"ready now has {most}"
            )
        if request.nodes is not None:
            each = request.devices // request.nodes
            most = max(sum(1 for has in pool.capacity.values() if has >= each) for pool in pools)
            return (
                f"needs {request.nodes} nodes with {counted_noun(each, 'device')}{of_type} each; "
                f"{most} "
                "such nodes are ready now"
            )
        most = max(sum(pool.capacity.values()) for pool in pools)
        one_type = of_type or (" of one type" if len(pools) > 1 else "")
        return (
            f"needs {counted_noun(request.devices, 'device')}{one_type}; all nodes ready now have "
            f"{most}"
        )
