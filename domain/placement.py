"""Which queued job goes where, decided as a pure function of what is known.

Rules, in order:

1. Higher priority first, then older first.
2. A gang is placed whole or not at all, on devices of one type, on the fewest nodes; among equal choices on the node
   that it fills best, so that large holes stay for large gangs.
3. A job that does not fit yet *holds* the nodes it waits for: later jobs may not take their free devices. So a stream
   of small jobs cannot starve a large gang, and devices that it could never use stay open to others.
4. The nodes a job failed on for the node's own reasons are tried last.

Not here: writing the decision down (``storage.attempts.place``), which is guarded and may lose; and when to look again
(``scheduler``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    """A node that may be given work."""

    name: str
    devices: dict[int, str]
    """Type of every device, by index."""
    free: frozenset[int]
    """Indices of devices that nobody holds."""
    ready: bool = True
    """False while draining or silent: it gets no work, but a gang may still wait for it."""


@dataclass(frozen=True)
class Request:
    """What one queued job asks for."""

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
    """Why, in one sentence."""


Decision = Placed | Waiting


def place(requests: Iterable[Request], nodes: Sequence[Node], *, now: float) -> list[Decision]:
    """Decide about every queued job, in queue order.

    Parameters
    ----------
    requests : iterable of Request
        All queued jobs.
    nodes : sequence of Node
        All registered nodes.
    now : float
        Seconds since the epoch, to compare with ``Request.not_before``.
    """
    raise NotImplementedError
