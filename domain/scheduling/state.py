"""Input and output of one decision.

Times are in seconds since the epoch. An unknown time is None, and never zero.

Not here: the decision (``domain.scheduling.decide``), the rows behind it
(``storage.control.scheduling``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A registered node."""

    name: str
    devices: Mapping[int, str]
    """Type of every device, by index."""
    free: frozenset[int]
    """Indices of free devices."""
    ready: bool = True
    """False while it gets no work: draining, quarantined, leaving or silent."""
    offers: frozenset[str] = frozenset()
    """Names of ``domain.kinds.offers``."""


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job that waits for devices."""

    job_id: str
    project: str
    user: str
    priority: int
    submitted_at: float
    devices: int
    nodes: int = 1
    """Exactly this many nodes, with equally many devices each."""
    device_type: str | None = None
    """None takes any type, but one for all devices."""
    needs: frozenset[str] = frozenset()
    """Each of its nodes offers all of these."""
    avoid: frozenset[str] = frozenset()
    """Names of nodes that are tried last."""
    not_before: float = 0.0
    """End of its backoff."""
    blocked: WaitReason | None = None
    """Reason for which it may not start, whatever is free."""
    limit_seconds: float | None = None
    """Time from its start until it surely ends; None without a time limit."""
    hold: Hold | None = None
    """Hold of the decision before."""

    def __post_init__(self) -> None:
        if self.devices < 1 or self.nodes < 1 or self.devices % self.nodes:
            raise ValueError(
                f"{self.devices} devices cannot be shared equally by {self.nodes} nodes"
            )

    @property
    def each(self) -> int:
        """Devices on each of its nodes."""
        return self.devices // self.nodes

    @property
    def is_gang(self) -> bool:
        """True for several devices, which have to be free at one time."""
        return self.devices > 1


@dataclass(frozen=True, slots=True)
class Running:
    """A job that has devices."""

    job_id: str
    project: str
    user: str
    devices: tuple[tuple[str, int], ...]
    """(node name, device index)."""
    ends_at: float | None = None
    """Latest end, by its time limit."""
    expected_at: float | None = None
    """Expected end, by its speed."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Nodes that are kept for a gang. It starts there once enough devices are free.

    The next decision reads the first three fields only, and finds the start again.
    """

    since: float
    kind: str
    """Type of the devices."""
    nodes: tuple[str, ...]
    starts_at: float | None = None
    """None while no time is known."""
    is_sure: bool = False
    """True if time limits give the start; False if the speed of jobs does."""


@dataclass(frozen=True, slots=True)
class Project:
    """Share and limits of one project."""

    weight: float = 1.0
    gpus_max: int | None = None
    """Devices that its jobs may have at one time."""
    gpus_per_user_max: int | None = None
    """Devices that the jobs of one user may have in it at one time."""
    budget_hours: float | None = None
    """Device-hours of its jobs in 30 days."""
    is_held: bool = False
    """True if none of its jobs starts beyond the budget."""
    used_hours: float = 0.0
    """Device-hours of its jobs in the last 30 days; 0 without a budget."""

    @property
    def is_over_budget(self) -> bool:
        """True if its jobs have used as many device-hours as the budget has."""
        return self.budget_hours is not None and self.used_hours >= self.budget_hours


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Everything that one decision depends on."""

    now: float
    nodes: tuple[ClusterNode, ...]
    queued: tuple[JobRequest, ...]
    running: tuple[Running, ...] = ()
    projects: Mapping[str, Project] = field(default_factory=dict)
    """A project that is missing has weight 1 and no limits."""
    usage: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """By project and user: devices in use on average, older use counting less."""


class BudgetAction(StrEnum):
    """Consequence of more device-hours than the budget of a project."""

    WARN = "warn"
    """Its plans say so."""
    HOLD = "hold"
    """None of its jobs starts."""


class WaitCode(StrEnum):
    """Kind of reason for which a job waits."""

    HOLDS = "holds"
    """It holds nodes, and starts there next."""
    BEHIND = "behind"
    """Jobs before it need the devices that it could use."""
    FAIR_SHARE = "fair_share"
    """Later jobs go first: their project or their owner has used less."""
    LIMIT = "limit"
    """Its project, or its owner, has as many devices as allowed."""
    BUDGET = "budget"
    """Its project has used its device-hours."""
    FRAGMENTED = "fragmented"
    """Enough devices are free, but not together."""
    NEEDS = "needs"
    """Too few ready nodes offer what it needs."""
    NEVER_FITS = "never_fits"
    NO_NODE = "no_node"
    BACKOFF = "backoff"
    SEALING = "sealing"
    """The output of its last attempt is not stored yet."""
    RESTORED = "restored"
    """An attempt that a restored backup lacks may still run."""
    UNREADABLE = "unreadable"
    """Only a newer version can read its spec."""


_NO_FACTS: Final[Mapping[str, Any]] = MappingProxyType({})


class WaitReason(NamedTuple):
    """Reason for which a job waits: a code with its facts, from which texts are made."""

    code: WaitCode
    facts: Mapping[str, Any] = _NO_FACTS


class Start(NamedTuple):
    """Start this job here."""

    job_id: str
    devices: tuple[tuple[str, tuple[int, ...]], ...]
    """(node name, device indices) by node rank."""


class Wait(NamedTuple):
    """This job waits."""

    job_id: str
    position: int
    """1 is next."""
    reason: WaitReason
    hold: Hold | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """One decision about all queued jobs."""

    starts: tuple[Start, ...]
    waits: tuple[Wait, ...]
    """By position."""
