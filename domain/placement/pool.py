"""Free devices of one type during one reconcile cycle."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lockstep.domain.placement.requests import Node, PlacementRequest


@dataclass(frozen=True)
class Choice:
    """Nodes of one pool that a job may take, or may wait for."""

    pool: Pool
    devices: tuple[tuple[str, int], ...]
    """(node name, how many devices there), sorted by name."""
    avoided: int
    """Number of these nodes that the job should avoid."""
    surplus: int
    """Free devices of these nodes beyond the job's need; negative while it waits."""

    def rank(self) -> tuple[int, int, int, str]:
        """The smallest is the best: rule 4, then rule 2.

        A job that waits prefers where the least is missing.
        """
        return self.avoided, len(self.devices), abs(self.surplus), self.pool.kind


class Pool:
    """Devices of one type on the ready nodes that are still available in this cycle."""

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

    # -- starting
    # ----------------------------------------------------------------------------------------------

    def fit(self, request: PlacementRequest) -> Choice | None:
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
        """The ``count`` nodes with the fewest free devices that have ``each``.

        Nodes to avoid only where they must.
        """
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
        for name in (
            name for names in reversed(self.by_free[1:]) for name in names if name not in avoid
        ):
            chosen.append(name)
            surplus += len(self.free[name])
            if surplus >= 0:
                break
        else:
            return None
        for place_, name in enumerate(chosen):
            size = len(self.free[name])
            smaller = (
                other for names in self.by_free[max(1, size - surplus) : size] for other in names
            )
            instead = next(
                (other for other in smaller if other not in avoid and other not in chosen), None
            )
            if instead is not None:
                surplus -= size - len(self.free[instead])
                chosen[place_] = instead
        chosen.sort(key=lambda name: (len(self.free[name]), name))
        counts = [(name, len(self.free[name])) for name in chosen]
        counts[-1] = (
            chosen[-1],
            counts[-1][1] - surplus,
        )  # the surplus stays together, on the largest
        return counts

    def take(self, choice: Choice) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Give the devices away, lowest indices first."""
        taken = []
        for name, count in choice.devices:
            self._leave(name)
            taken.append((name, tuple(self.free[name][:count])))
            del self.free[name][:count]
            insort(self.by_free[len(self.free[name])], name)
        return tuple(taken)

    # -- waiting
    # ----------------------------------------------------------------------------------------------

    def waits_for(self, request: PlacementRequest) -> Choice | None:
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
            names = _first(
                count,
                (name for name in emptiest_first if self.capacity[name] >= each),
                request.avoid,
            )
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

    def hold(self, choice: Choice, request: PlacementRequest) -> str:
        """Keep these nodes' free devices from later jobs; the reason that the job waits for."""
        names = [name for name, _ in choice.devices]
        for name in names:
            self._leave(name)
            self.open_capacity[self.capacity[name]] -= 1
        self.last_holder = request.job_id
        free = request.devices + choice.surplus
        where = (
            names[0]
            if len(names) == 1
            else f"{names[0]} and {counted_noun(len(names) - 1, 'more node')}"
        )
        return (
            f"waits for {counted_noun(-choice.surplus, 'more free device')} of type {self.kind} "
            f"(needs {request.devices}, {free} {'is' if free == 1 else 'are'} free on {where})"
        )

    def could_serve(self, request: PlacementRequest) -> bool:
        """Return whether all ready nodes together, if they were free, could run the job."""
        if request.nodes is None:
            return sum(self.capacity.values()) >= request.devices
        each = request.devices // request.nodes
        return sum(1 for has in self.capacity.values() if has >= each) >= request.nodes

    # -- both
    # ----------------------------------------------------------------------------------------------

    def _choice(
        self, counts: list[tuple[str, int]], request: PlacementRequest, surplus: int
    ) -> Choice:
        avoided = sum(1 for name, _ in counts if name in request.avoid)
        return Choice(self, tuple(sorted(counts)), avoided, surplus)

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
    """The fewest nodes of these capacities that have ``devices`` together.

    0 where all of them have not.
    """
    nodes = 0
    for capacity in sorted(capacities, reverse=True):
        take = min(capacities[capacity], -(-devices // capacity))
        nodes += take
        devices -= take * capacity
        if devices <= 0:
            return nodes
    return 0


def counted_noun(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
