"""Input and output of a placement."""

from __future__ import annotations

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
        if self.devices < 1 or (
            self.nodes is not None and (self.nodes < 1 or self.devices % self.nodes)
        ):
            raise ValueError(
                f"{self.devices} devices cannot be shared equally by {self.nodes} nodes"
            )


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
