"""Response with what one person looks at first: own jobs, what needs attention, who uses what.

Not here: jobs and nodes one by one (``domain.views``).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from lockstep.domain.views import JobView, View


class DeviceCounts(View):
    """Devices of all nodes. Each is counted in one of the last four."""

    total: int
    in_use: int
    idle: int
    """Held by a job that has not used it for five minutes."""
    free: int
    closed: int
    """Held by no job, on a node that gets no work."""


class UserUse(View):
    user: str
    in_use: int


class ProjectUse(View):
    """Devices of a project now. Nothing in it changes by the passage of time alone."""

    project: str
    in_use: int
    """Devices that its jobs hold."""
    idle: int
    """Those of them that are not used."""
    entitled: float | None
    """As of its share: devices that its weight gives it."""
    queued: int
    people: list[UserUse]
    """People whose jobs hold devices."""


class NodeNotice(View):
    """A node that gets no work."""

    kind: Literal["node"]
    name: str
    state: Literal["draining", "quarantined", "leaving", "lost"]
    reason: str | None
    """As of the node: of a quarantine or a drain."""
    since: datetime | None
    drained_by: str | None
    seen_at: datetime | None
    """Time of the last heartbeat of a node that is lost."""


class JobNotice(View):
    """An own job that has failed in the last 24 hours."""

    kind: Literal["job"]
    id: str
    name: str
    project: str
    message: str
    finished_at: datetime


class BudgetNotice(View):
    """A project that has used more than 80 % of its device-hours."""

    kind: Literal["budget"]
    project: str
    used_gpu_hours: float
    """Rounded to a tenth."""
    budget_gpu_hours: float


Notice = Annotated[NodeNotice | JobNotice | BudgetNotice, Field(discriminator="kind")]


class HomeJobs(View):
    """Jobs of the caller."""

    running: int
    """Also those that start."""
    queued: int
    failed: int
    """In the last 24 hours, at most 20."""
    first: list[JobView]
    """At most five: those that run, those that are paused, then the newest that have ended."""
    waiting: list[JobView]
    """At most seven that wait, in the order of their places."""


class HomeView(View):
    nodes: int
    devices: DeviceCounts
    projects: list[ProjectUse]
    """With jobs that run or wait, as far as the caller may read them."""
    others: int
    """Devices of jobs that the caller may not read."""
    jobs: HomeJobs
    attention: list[Notice]
    """Nodes by name, then failed jobs, the newest first, then projects."""
