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

Not here: storing the decision (``storage.attempts.attempts.place``), which is guarded and may fail;
the schedule of decisions (``scheduler``).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    """A node that may be given work."""

    name: str
    devices: dict[int, str]
    """Type of every device, by index."""
    free: frozenset[int]
    """Indices of free devices."""
    ready: bool = True
    """False while draining or silent: it gets no work, but a gang may still wait for it."""


@dataclass(frozen=True)
class PlacementRequest:
    """Request of one queued job."""

    job_id: str
    priority: int
    created_at: float
    devices: int
    nodes: int | None = None
    """Exactly this many nodes with equally many devices each; None takes the fewest."""
    device_type: str | None = None
    avoid: frozenset[str] = frozenset()
    """Names of nodes that are tried last."""
    not_before: float = 0.0
    """Seconds since the epoch; a job in backoff neither starts nor holds nodes before that."""

    def __post_init__(self) -> None:
        if self.devices < 1 or (self.nodes is not None and (self.nodes < 1 or self.devices % self.nodes)):
            raise ValueError(f"{self.devices} devices cannot be shared equally by {self.nodes} nodes")


@dataclass(frozen=True)
class Placed:
    """Start this job here."""

    job_id: str
    devices: tuple[tuple[str, tuple[int, ...]], ...]
    """(node name, device indices) by node rank."""


@dataclass(frozen=True)
class Waiting:
    """This job waits."""

    job_id: str
    position: int
    """1 is next."""
    reason: str
    """Reason, in one sentence."""


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


def place(requests: Iterable[PlacementRequest], nodes: Sequence[Node], *, now: float) -> list[Decision]:
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
            answer: Placed | str = f"retries in {max(1, round(request.not_before - now))} s after a failure"
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
        self.pools = {kind: _Pool(kind, ready) for kind in kinds}
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
            best = min(fits, key=_Choice.rank)
            return Placed(request.job_id, best.pool.take(best))
        holds = [choice for pool in pools if (choice := pool.waits_for(request)) is not None]
        if holds:
            best = min(holds, key=_Choice.rank)
            return best.pool.hold(best, request)
        self.refused[shape] = self._why_not(request, pools)
        return self.refused[shape]

    def _why_not(self, request: PlacementRequest, pools: list[_Pool]) -> str:
        """Return the reason for holding nothing: nodes are missing or held by earlier jobs."""
        for pool in pools:
            if pool.could_serve(request):
                return f"behind job {pool.last_holder}, which needs the same devices"
        if not self.nodes:
            return "no node is registered yet"
        if not self.pools:
            registered = _count(len(self.nodes), "node")
            return f"no node is ready: {registered} registered, none of them ready; lockstep nodes shows the reasons"
        kind = request.device_type
        if not pools:
            return f"no ready node has devices of type {kind} (available types: {', '.join(self.pools)})"
        of_type = f" of type {kind}" if kind else ""
        if request.nodes == 1:
            most = max(max(pool.capacity.values()) for pool in pools)
            return f"needs {_count(request.devices, 'device')}{of_type} on one node; the largest ready now has {most}"
        if request.nodes is not None:
            each = request.devices // request.nodes
            most = max(sum(1 for has in pool.capacity.values() if has >= each) for pool in pools)
            return (
                f"needs {request.nodes} nodes with {_count(each, 'device')}{of_type} each; {most} "
                "such nodes are ready now"
            )
        most = max(sum(pool.capacity.values()) for pool in pools)
        one_type = of_type or (" of one type" if len(pools) > 1 else "")
        return f"needs {_count(request.devices, 'device')}{one_type}; all nodes ready now have {most}"


@dataclass(frozen=True)
class _Choice:
    """Nodes of one pool that a job may take, or may wait for."""

    pool: _Pool
    devices: tuple[tuple[str, int], ...]
    """(node name, how many devices there), sorted by name."""
    avoided: int
    """Number of these nodes that the job should avoid."""
    surplus: int
    """Free devices of these nodes beyond the job's need; negative while it waits."""

    def rank(self) -> tuple[int, int, int, str]:
        """The smallest is the best: rule 4, then rule 2; a job that waits prefers where the least is missing."""
        return self.avoided, len(self.devices), abs(self.surplus), self.pool.kind


class _Pool:
    """The devices of one type on the nodes that are ready, as far as they may still be given away in this pass."""

    def __init__(self, kind: str, ready: Sequence[Node]) -> None:
        self.kind = kind
        self.capacity: dict[str, int] = {}
        """Devices of this type by node name, busy ones too."""
        self.free: dict[str, list[int]] = {}
        self.last_holder = ""
        """Id of the job that held a node last."""
        for node in ready:
            mine = [index for index, type_ in node.devices.items() if type_ == kind]
            if mine:
                self.capacity[node.name] = len(mine)
                self.free[node.name] = sorted(node.free.intersection(mine))
        self.by_free: list[list[str]] = [[] for _ in range(max(self.capacity.values()) + 1)]
        """Sorted names of the nodes that are not held, by their number of free devices. A search
        passes as many lists as a node has devices, however many nodes there are."""
        for name in sorted(self.free):
            self.by_free[len(self.free[name])].append(name)
        self.open_capacity = Counter(self.capacity.values())
        """Number of nodes that are not held, by their number of devices."""

    # -- starting ------------------------------------------------------------------------------------------------

    def fit(self, request: PlacementRequest) -> _Choice | None:
        """The free devices to start on now, or None."""
        counts: list[tuple[str, int]] | None
        if request.nodes is not None:
            each = request.devices // request.nodes
            names = self._fullest(each, request.nodes, request.avoid)
            counts = None if names is None else [(name, each) for name in names]
        else:
            counts = self._fewest(request.devices, request.avoid)
            if counts is None and request.avoid:
                counts = self._fewest(request.devices, frozenset())
        if counts is None:
            return None
        free = sum(len(self.free[name]) for name, _ in counts)
        return self._choice(counts, request, free - request.devices)

    def _fullest(self, each: int, count: int, avoid: frozenset[str]) -> list[str] | None:
        """The ``count`` nodes with the fewest free devices that have ``each``; nodes to avoid only where they must."""
        return _first(count, (name for names in self.by_free[each:] for name in names), avoid)

    def _fewest(self, needed: int, avoid: frozenset[str]) -> list[tuple[str, int]] | None:
        """Return the fewest nodes with ``needed`` free devices together, and the count on each.

        None of them is in ``avoid``. The search starts from the nodes with the most free devices,
        which gives the number of nodes. Then, from the largest down, each is exchanged for the
        smallest unused one that still leaves enough. One sweep suffices: every unused node was at
        most as large as every chosen one, so a node released by a later exchange is of no use to an
        earlier one.
        """
        chosen: list[str] = []
        surplus = -needed
        for name in (name for names in reversed(self.by_free[1:]) for name in names if name not in avoid):
            chosen.append(name)
            surplus += len(self.free[name])
            if surplus >= 0:
                break
        else:
            return None
        for place_, name in enumerate(chosen):
            size = len(self.free[name])
            smaller = (other for names in self.by_free[max(1, size - surplus) : size] for other in names)
            instead = next((other for other in smaller if other not in avoid and other not in chosen), None)
            if instead is not None:
                surplus -= size - len(self.free[instead])
                chosen[place_] = instead
        chosen.sort(key=lambda name: (len(self.free[name]), name))
        counts = [(name, len(self.free[name])) for name in chosen]
        counts[-1] = (chosen[-1], counts[-1][1] - surplus)  # the surplus stays together, on the largest
        return counts

    def take(self, choice: _Choice) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Give the devices away, lowest indices first."""
        taken = []
        for name, count in choice.devices:
            self._leave(name)
            taken.append((name, tuple(self.free[name][:count])))
            del self.free[name][:count]
            insort(self.by_free[len(self.free[name])], name)
        return tuple(taken)

    # -- waiting -------------------------------------------------------------------------------------------------

    def waits_for(self, request: PlacementRequest) -> _Choice | None:
        """Return the nodes to hold for a job that does not fit now.

        None if the nodes that are not held can never serve it.
        """
        count = request.nodes or _nodes_needed(request.devices, self.open_capacity)
        if not count:
            return None
        each = -(-request.devices // count)
        capable = sum(nodes for has, nodes in self.open_capacity.items() if has >= each)
        emptiest_first = (name for names in reversed(self.by_free) for name in names)
        if capable >= count:
            names = _first(count, (name for name in emptiest_first if self.capacity[name] >= each), request.avoid)
            assert names is not None, "the count was the same"
        elif request.nodes is None:  # nodes of several sizes: only the largest ones are few enough
            names = sorted(emptiest_first, key=lambda name: (-self.capacity[name], name))[:count]
        else:
            return None
        wanted = [(name, each) for name in names]
        if request.nodes is None:
            missing = request.devices - sum(len(self.free[name]) for name in names)
        else:
            missing = sum(max(0, each - len(self.free[name])) for name in names)
        return self._choice(wanted, request, -missing)

    def hold(self, choice: _Choice, request: PlacementRequest) -> str:
        """Keep these nodes' free devices from later jobs; the reason that the job waits for."""
        names = [name for name, _ in choice.devices]
        for name in names:
            self._leave(name)
            self.open_capacity[self.capacity[name]] -= 1
        self.last_holder = request.job_id
        free = request.devices + choice.surplus
        where = names[0] if len(names) == 1 else f"{names[0]} and {_count(len(names) - 1, 'more node')}"
        return (
            f"waits for {_count(-choice.surplus, 'more free device')} of type {self.kind} "
            f"(needs {request.devices}, {free} {'is' if free == 1 else 'are'} free on {where})"
        )

    def could_serve(self, request: PlacementRequest) -> bool:
        """Return whether all ready nodes together, if they were free, could run the job."""
        if request.nodes is None:
            return sum(self.capacity.values()) >= request.devices
        each = request.devices // request.nodes
        return sum(1 for has in self.capacity.values() if has >= each) >= request.nodes

    # -- both ----------------------------------------------------------------------------------------------------

    def _choice(self, counts: list[tuple[str, int]], request: PlacementRequest, surplus: int) -> _Choice:
        avoided = sum(1 for name, _ in counts if name in request.avoid)
        return _Choice(self, tuple(sorted(counts)), avoided, surplus)

    def _leave(self, name: str) -> None:
        """Take a node out of the lists that it is found by."""
        names = self.by_free[len(self.free[name])]
        del names[bisect_left(names, name)]


def _first(count: int, names: Iterator[str], avoid: frozenset[str]) -> list[str] | None:
    """The first ``count`` names, those to avoid last; None where there are fewer."""
    chosen: list[str] = []
    last: list[str] = []
    for name in names:
        (last if name in avoid else chosen).append(name)
        if len(chosen) == count:
            return chosen
    chosen += last[: count - len(chosen)]
    return chosen if len(chosen) == count else None


def _nodes_needed(devices: int, capacities: Counter[int]) -> int:
    """The fewest nodes of these capacities that have ``devices`` together; 0 where all of them have not."""
    nodes = 0
    for capacity in sorted(capacities, reverse=True):
        take = min(capacities[capacity], -(-devices // capacity))
        nodes += take
        devices -= take * capacity
        if devices <= 0:
            return nodes
    return 0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
