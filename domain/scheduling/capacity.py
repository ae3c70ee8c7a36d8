"""Devices of one type during one decision: free ones, ends of the others, and holds.

Free devices only decrease and holds only increase. A job that was refused is therefore refused for
the rest of the decision, and so is each other of its shape.

Not here: whose turn it is (``domain.scheduling.shares``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, islice
from math import inf
from operator import attrgetter
from typing import Final, NamedTuple

from lockstep.domain.scheduling.state import ClusterNode, Hold, JobRequest

_Time = tuple[bool, bool, float, int, str]
"""Of a node: whether the time at which it is free is unknown, whether the job avoids it, that time,
minus its free devices, its name. The smallest is the best."""
_Start = tuple[bool, int, float, int]
"""Of several nodes: whether the time at which all are free is unknown, number of avoided ones, that
time, minus their free devices if it is unknown. The smallest is the best."""
LATE_SECONDS: Final = 60.0
"""Time that a job may have its devices beyond its limit: the start of its ranks, and its stop."""


class End(NamedTuple):
    """Time at which a device becomes free."""

    at: float
    """``inf`` if it is unknown."""
    is_sure: bool = True
    """False for a time that comes from the speed of a job."""


_UNKNOWN: Final = End(inf)


class Fit(NamedTuple):
    """Nodes of one pool on which a job may start."""

    pool: DevicePool
    names: tuple[str, ...]
    avoided: int
    """Number of these nodes that the job should avoid."""
    held: int
    """Number of these nodes that are held by another job."""
    left: int
    """Free devices of these nodes that the job leaves."""

    def rank(self) -> tuple[int, int, int, str]:
        """The smallest is the best. Groups of free devices are kept together for gangs."""
        return self.avoided, self.held, self.left, self.pool.kind


class _NodeDevices:
    """Devices of one type on one node."""

    def __init__(
        self, count: int, free: list[int], ends: list[End], offers: frozenset[str]
    ) -> None:
        self.count = count
        self.offers = offers
        self.free = free
        self.ends = sorted(ends, key=attrgetter("at"))
        """Of the devices that are not free."""
        self.times = [end.at for end in self.ends]
        self.hold: tuple[JobRequest, float] | None = None
        """Job that holds the node, and the start of the hold; ``inf`` if it is unknown."""

    def free_from(self, each: int, now: float) -> End:
        """Return when this number of devices is free, if nothing else starts here."""
        missing = each - len(self.free)
        return End(now) if missing <= 0 else self.ends[missing - 1]

    def permits(self, job: JobRequest, end: float) -> bool:
        """Return whether a job that ends at this time delays no hold of another one."""
        if self.hold is None or self.hold[0].job_id == job.job_id:
            return True
        holder, start = self.hold
        if end <= start:
            # Of a hold without a known start: a job with a limit does not make it unknown.
            return end < inf
        at_start = len(self.free) + bisect_right(self.times, start)
        return at_start - job.each >= holder.each

    def take(self, count: int, end: float) -> tuple[int, ...]:
        """Give free devices away until ``end``, lowest indices first."""
        taken = tuple(self.free[:count])
        del self.free[:count]
        after = bisect_right(self.times, end)
        self.ends[after:after] = [End(end)] * count
        self.times[after:after] = [end] * count
        return taken


class DevicePool:
    """Devices of one type on the ready nodes that have such devices."""

    def __init__(
        self,
        kind: str,
        ready: Iterable[ClusterNode],
        ends: Mapping[tuple[str, int], End],
        now: float,
    ) -> None:
        self.kind = kind
        self._now = now
        self._nodes: dict[str, _NodeDevices] = {}
        for node in ready:
            mine = sorted([index for index, type_ in node.devices.items() if type_ == kind])
            free = [index for index in mine if index in node.free]
            busy = [
                ends.get((node.name, index), _UNKNOWN) for index in mine if index not in node.free
            ]
            self._nodes[node.name] = _NodeDevices(len(mine), free, busy, node.offers)
        self._sizes = Counter([node.count for node in self._nodes.values()])
        """Number of nodes by their number of devices."""
        self._free = sum([len(node.free) for node in self._nodes.values()])
        self._by_free: list[list[str]] = [[] for _ in range(max(self._sizes) + 1)]
        """Sorted names of the nodes that are not held, by their number of free devices. A search
        passes as many lists as a node has devices, however many nodes there are."""
        for name in sorted(self._nodes):
            self._by_free[len(self._nodes[name].free)].append(name)
        self._held: list[str] = []
        self._awaited: set[frozenset[str]] = set()
        """Needs of the jobs that get the next free device of their nodes."""

    def _offering(self, job: JobRequest) -> Collection[tuple[str, _NodeDevices]]:
        """Return the nodes that offer what a job needs, by name."""
        if not job.needs:
            return self._nodes.items()
        return [(name, node) for name, node in self._nodes.items() if job.needs <= node.offers]

    def free(self, job: JobRequest) -> int:
        """Return the number of free devices for a job, held ones included."""
        if not job.needs:
            return self._free
        return sum(len(node.free) for _, node in self._offering(job))

    def free_on(self, names: Iterable[str], job: JobRequest) -> int:
        """Return the number of free devices on these nodes that a job could use."""
        return sum(min(job.each, len(self._nodes[name].free)) for name in names)

    def largest(self, job: JobRequest) -> int:
        """Return the devices of the largest node for a job."""
        return max((node.count for _, node in self._offering(job)), default=0)

    def holder(self, job: JobRequest) -> JobRequest | None:
        """Return another job that holds a node for this one, if there is such a job."""
        nodes = (self._nodes[name] for name in self._held)
        holds = (node.hold for node in nodes if job.needs <= node.offers)
        return next((hold[0] for hold in holds if hold is not None), None)

    def capable(self, job: JobRequest) -> int:
        """Return the number of nodes with enough devices for a job, busy or held ones included."""
        sizes = self._sizes
        if job.needs:
            sizes = Counter([node.count for _, node in self._offering(job)])
        return sum(number for size, number in sizes.items() if size >= job.each)

    # -- starting

    def fit(self, job: JobRequest, end: float) -> Fit | None:
        """Return the free devices on which a job may start now, tightest fit first.

        A held node is used only where others are not enough.

        Parameters
        ----------
        job : JobRequest
        end : float
            Latest time at which the job gives its devices back; ``inf`` if it has no limit.
        """
        names = _first(job.nodes, chain(self._open(job), self._lent(job, end)), job.avoid)
        if names is None:
            return None
        nodes = [self._nodes[name] for name in names]
        return Fit(
            self,
            tuple(sorted(names)),
            avoided=len(job.avoid.intersection(names)),
            held=sum([node.hold is not None for node in nodes]),
            left=sum([len(node.free) for node in nodes]) - job.devices,
        )

    def _open(self, job: JobRequest) -> Iterator[str]:
        names = chain.from_iterable(self._by_free[job.each :])
        if not job.needs:
            return names
        return (name for name in names if job.needs <= self._nodes[name].offers)

    def _lent(self, job: JobRequest, end: float) -> Iterator[str]:
        """Yield the held nodes on which a job of this end delays no hold, its own included."""
        for name in self._held:
            node = self._nodes[name]
            if len(node.free) >= job.each and job.needs <= node.offers and node.permits(job, end):
                yield name

    def take(
        self, choice: Fit, job: JobRequest, end: float
    ) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Give the devices of a choice to a job until ``end``."""
        found = []
        for name in choice.names:
            node = self._nodes[name]
            self._leave(name)
            found.append((name, node.take(job.each, end)))
            self._enter(name)
        self._free -= job.devices
        return tuple(found)

    # -- waiting

    def expect(self, job: JobRequest) -> None:
        """Give the next free device to a job that is no gang: no later gang begins a hold there."""
        self._awaited.add(job.needs)

    def earliest(self, job: JobRequest) -> tuple[_Start, Hold, DevicePool] | None:
        """Return the start and the nodes of the best hold of a job; None if there is none.

        Nodes that another job holds or expects are left out. The nodes of the job's former hold
        are kept unless others are free earlier: its start moves later for no node that the job
        avoids.
        """
        times = self._times(job, () if job.hold is not None else self._awaited)
        if len(times) < job.nodes:
            return None
        best = sorted(times)[: job.nodes]
        kept = self._kept(job, times)
        if kept is not None and _free_at(kept) <= _free_at(best):
            best = kept
        return self._hold_on(job, best)

    def kept(self, job: JobRequest) -> Hold | None:
        """Return the former hold of a job with its present start; None if a node is not there."""
        kept = self._kept(job, self._times(job))
        return None if kept is None else self._hold_on(job, kept)[1]

    def _times(self, job: JobRequest, awaited: Collection[frozenset[str]] = ()) -> list[_Time]:
        """Return the nodes that a job may hold, with the time at which they are free."""
        if frozenset() in awaited:
            return []
        nodes = self._offering(job)
        if awaited:
            nodes = [one for one in nodes if not any(each <= one[1].offers for each in awaited)]
        each, avoid, now = job.each, job.avoid, self._now
        return [
            (at == inf, name in avoid, at, -len(node.free), name)
            for name, node in nodes
            if node.count >= each and (node.hold is None or node.hold[0].job_id == job.job_id)
            for at in [node.free_from(each, now).at]
        ]

    def _kept(self, job: JobRequest, times: list[_Time]) -> list[_Time] | None:
        former = job.hold.nodes if job.hold is not None and job.hold.kind == self.kind else ()
        kept = [time for time in times if time[-1] in former]
        return kept if former and len(kept) == job.nodes else None

    def _hold_on(self, job: JobRequest, best: list[_Time]) -> tuple[_Start, Hold, DevicePool]:
        start, _ = _free_at(best)
        names = tuple(sorted(name for *_, name in best))
        ends = [self._nodes[name].free_from(job.each, self._now) for name in names]
        since = self._now if job.hold is None else job.hold.since
        is_sure = start < inf and all(end.is_sure for end in ends if end.at == start)
        hold = Hold(since, self.kind, names, None if start == inf else start, is_sure)
        return _start(best), hold, self

    def hold(self, job: JobRequest, hold: Hold) -> None:
        """Keep the nodes of a hold from other jobs."""
        start = inf if hold.starts_at is None else hold.starts_at
        for name in hold.nodes:
            self._leave(name)
            self._nodes[name].hold = job, start
            self._enter(name)

    def release(self, job: JobRequest) -> None:
        """End the hold of a job, if it has one here."""
        for name in list(self._held):
            node = self._nodes[name]
            if node.hold is not None and node.hold[0].job_id == job.job_id:
                self._leave(name)
                node.hold = None
                self._enter(name)

    def _leave(self, name: str) -> None:
        """Take a node out of the list by which it is found."""
        names = self._list_of(name)
        del names[bisect_left(names, name)]

    def _enter(self, name: str) -> None:
        insort(self._list_of(name), name)

    def _list_of(self, name: str) -> list[str]:
        node = self._nodes[name]
        return self._by_free[len(node.free)] if node.hold is None else self._held


def _start(times: list[_Time]) -> _Start:
    """Return what makes one set of nodes better than another."""
    at, free = _free_at(times)
    return at == inf, sum(avoided for _, avoided, *_ in times), at, free


def _free_at(times: list[_Time]) -> tuple[float, int]:
    """Return when all nodes are free, and minus their free devices if that is unknown."""
    unknown_free = sum(free for is_unknown, _, _, free, _ in times if is_unknown)
    return max(at for _, _, at, *_ in times), unknown_free


def _first(count: int, names: Iterable[str], avoid: frozenset[str]) -> list[str] | None:
    """Return the first names, those to avoid last; None if there are fewer than ``count``."""
    if not avoid:
        found = list(islice(names, count))
        return found if len(found) == count else None
    chosen: list[str] = []
    last: list[str] = []
    for name in names:
        (last if name in avoid else chosen).append(name)
        if len(chosen) == count:
            return chosen
    chosen += last[: count - len(chosen)]
    return chosen if len(chosen) == count else None
