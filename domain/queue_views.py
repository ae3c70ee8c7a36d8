"""Responses of the HTTP API about the queue: places, reasons for waiting, and shares.

Not here: the decision behind them (``domain.scheduling``).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel

from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.scheduling.state import WaitCode
from lockstep.domain.schema_docs import Described


class _QueueView(Described, BaseModel, frozen=True, defer_build=True):
    """A response or a part of one."""


class TimeLimit(_QueueView):
    """Time after which a running job is stopped."""

    seconds: float
    source: Literal["job", "project", "service"] | None
    """Origin: the spec, or a default of its project or of the service; null if it is not known."""


class QueuePlace(_QueueView):
    position: int
    """1 is next."""
    reason: str
    """Reason for waiting, in one sentence."""
    code: WaitCode | None = None
    """Kind of that reason; null from a scheduler of the version before."""
    facts: dict[str, Any] = {}
    """Parts of the sentence, by code: numbers, names, and times in seconds since the epoch."""
    estimated_start: datetime | None = None


class UserShare(_QueueView):
    """A person's part of a project."""

    user: str
    in_use: int
    """Devices now."""
    average: float
    """Devices on average, older use counting less."""
    queued: int
    """Jobs that wait."""


class ShareView(_QueueView):
    """Share of a project, and its use."""

    project: str
    weight: float
    entitled: float | None
    """Devices that its weight gives it among the projects with jobs; null without a job."""
    in_use: int
    """Devices now."""
    average: float
    """Devices on average, older use counting less: the project with the least of both, divided by
    its weight, goes first."""
    queued: int
    """Jobs that wait."""
    gpus_max: int | None
    """Devices that its jobs may have at one time."""
    budget_gpu_hours: float | None
    used_gpu_hours: float | None
    """Device-hours of the last 30 days; null without a budget."""
    people: list[UserShare]


class SharesView(_QueueView):
    """Shares of the projects that the caller may read."""

    devices: int
    """Devices of all ready nodes."""
    half_life_seconds: float
    """Age at which use counts half for an average."""
    items: list[ShareView]
    """By name."""


class JobAhead(_QueueView):
    """A job with an earlier place in the queue."""

    id: str
    name: str
    project: str
    owner: str
    devices: int
    position: int


class WhyView(_QueueView):
    """Reason for which a job waits, and what is ahead of it."""

    id: str
    name: str
    state: JobState
    queue: QueuePlace | None
    """Null for a job that does not wait."""
    start: str | None
    """When it starts, or why that is not known, in one sentence; null for a job that does not
    wait."""
    ahead: list[JobAhead]
    """The first jobs ahead of it that the caller may read."""
    ahead_count: int
    """All jobs ahead of it."""
    limit: TimeLimit | None
