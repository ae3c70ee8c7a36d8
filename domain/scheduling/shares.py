"""Order of queued jobs: whose turn it is.

Between projects, the one goes first that has the fewest devices for its weight: those that it has
now and those that it used on average. Inside a project: higher priority, then the user who has
fewer devices by the same measure, then age. With one project and one user that is priority and
age.

Not here: what a job may start on (``domain.scheduling.capacity``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from itertools import groupby
from operator import itemgetter

from lockstep.domain.scheduling.state import ClusterState, JobRequest, Project

Key = tuple[str, str]
"""Project and user."""


class Standing:
    """Devices of each user in each project: in use, and used on average."""

    def __init__(self, devices: Mapping[Key, float], projects: Mapping[str, Project]) -> None:
        self._of_user = defaultdict(float, devices)
        self._projects = projects
        self._of_project: defaultdict[str, float] = defaultdict(float)
        for (project, _), count in devices.items():
            self._of_project[project] += count

    @classmethod
    def of(cls, snapshot: ClusterState) -> Standing:
        """Return the standing before a decision."""
        devices = defaultdict(float, snapshot.usage)
        for job in snapshot.running:
            devices[job.project, job.user] += len(job.devices)
        return cls(devices, snapshot.projects)

    def charge(self, job: JobRequest) -> None:
        """Count the devices of a job that starts."""
        self._of_user[job.project, job.user] += job.devices
        self._of_project[job.project] += job.devices

    def devices_of(self, project: str) -> tuple[float, float]:
        """Return the devices of a project, and its weight."""
        weight = self._projects[project].weight if project in self._projects else 1.0
        return self._of_project[project], weight

    def of_project(self, project: str) -> float:
        """Devices of a project for one unit of weight."""
        devices, weight = self.devices_of(project)
        return devices / weight

    def of_user(self, project: str, user: str) -> float:
        """Devices of a user in a project."""
        return self._of_user[project, user]


def turns(jobs: Iterable[JobRequest], standing: Standing) -> Iterator[JobRequest]:
    """Yield jobs in their order. A charge between two of them counts for the next.

    Only the project of the last yielded job may be charged.

    Parameters
    ----------
    jobs : iterable of JobRequest
    standing : Standing
    """
    of_project: defaultdict[str, list[JobRequest]] = defaultdict(list)
    for job in jobs:
        of_project[job.project].append(job)
    queues = {name: _Project(members, standing) for name, members in of_project.items()}
    heap = [(standing.of_project(name), *queue.head, name) for name, queue in queues.items()]
    heapify(heap)
    while heap:
        # Mostly nothing was charged, and the project stays the first.
        name = heap[0][-1]
        queue = queues[name]
        yield queue.pop()
        if queue:
            queue.settle()
            heapreplace(heap, (standing.of_project(name), *queue.head, name))
        else:
            heappop(heap)


def line(jobs: Iterable[JobRequest], standing: Standing) -> list[JobRequest]:
    """Return jobs in the order of :func:`turns` if each is charged when it is its turn.

    The standing of a user before each of the own jobs is then known, and sorting is enough. It
    takes half of the time.
    """
    ordered = sorted(jobs, key=lambda job: (-job.priority, job.submitted_at, job.job_id))
    has: dict[Key, float] = {}
    of_project: defaultdict[str, list[tuple[int, float, float, str, JobRequest]]]
    of_project = defaultdict(list)
    for job in ordered:
        user = (job.project, job.user)
        before = has.get(user)
        if before is None:
            before = standing.of_user(*user)
        has[user] = before + job.devices
        turn = (-job.priority, before, job.submitted_at, job.job_id, job)
        of_project[job.project].append(turn)
    found: list[tuple[float, float, str, JobRequest]] = []
    for project, members in of_project.items():
        members.sort(key=itemgetter(0, 1, 2, 3))
        devices, weight = standing.devices_of(project)
        for *_, submitted_at, job_id, job in members:
            found.append((devices / weight, submitted_at, job_id, job))
            devices += job.devices
    found.sort(key=itemgetter(0, 1, 2))
    return [job for *_, job in found]


class _Project:
    """Queue of one project: levels of one priority each, in which users take turns."""

    def __init__(self, jobs: list[JobRequest], standing: Standing) -> None:
        self._standing = standing
        ordered = sorted(jobs, key=lambda job: (-job.priority, job.submitted_at, job.job_id))
        self._left = len(ordered)
        self._levels = groupby(ordered, key=lambda job: job.priority)
        self._users: dict[str, list[JobRequest]] = {}
        """Jobs of the present level, the oldest last."""
        self._heap: list[tuple[float, float, str, str]] = []
        self._last: str | None = None
        self._refill()

    def __bool__(self) -> bool:
        return self._left > 0

    @property
    def head(self) -> tuple[float, str]:
        """Age and id of the next job, which decide between projects of equal standing."""
        _, submitted_at, job_id, _ = self._heap[0]
        return submitted_at, job_id

    def pop(self) -> JobRequest:
        """Take the next job. :meth:`settle` has to follow, after a charge."""
        *_, user = heappop(self._heap)
        self._left -= 1
        job = self._users[user].pop()
        self._last = user
        return job

    def settle(self) -> None:
        """Put the user of the last job back, with the present standing."""
        if self._last is not None and self._users[self._last]:
            self._push(self._last)
        self._last = None
        if not self._heap:
            self._refill()

    def _refill(self) -> None:
        for _, level in self._levels:
            users: defaultdict[str, list[JobRequest]] = defaultdict(list)
            for job in level:
                users[job.user].append(job)
            self._users = {name: jobs[::-1] for name, jobs in users.items()}
            for name in self._users:
                self._push(name)
            return

    def _push(self, user: str) -> None:
        job = self._users[user][-1]
        has = self._standing.of_user(job.project, user)
        heappush(self._heap, (has, job.submitted_at, job.job_id, user))
