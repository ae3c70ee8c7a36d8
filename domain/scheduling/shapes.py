"""Shapes of queued jobs: what a search for devices depends on.

A long queue has few shapes. A decision searches once for each shape and end, and gives the other
jobs the same answer: during a decision, free devices only decrease and holds only increase.

Not here: the searches (``domain.scheduling.decide``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import inf

from lockstep.domain.scheduling.capacity import LATE_SECONDS
from lockstep.domain.scheduling.offers import Offers
from lockstep.domain.scheduling.state import JobRequest, WaitReason


class Shape:
    """Jobs that ask for the same devices and nodes, during one decision.

    They differ by their ends only. A refusal of one holds for each that ends as late.
    """

    __slots__ = ("_answered", "_reason", "_refused", "ends", "is_settled")

    def __init__(self) -> None:
        self.ends: list[float] = []
        """Ends of all its jobs."""
        self.is_settled = False
        """True if no job without an answer may start or hold nodes."""
        self._answered = 0
        self._refused = inf
        """Earliest end that was refused."""
        self._reason: WaitReason | None = None
        """Reason of that refusal; None before the first."""

    def begin(self, end: float) -> WaitReason | None:
        """Count the answer of a job of this end; return the reason of an earlier refusal."""
        self._answered += 1
        if self._answered == len(self.ends):
            self.is_settled = True
        return self._reason if end >= self._refused else None

    def refuse(self, end: float, reason: WaitReason) -> None:
        """Refuse a job of this end, and each that ends as late."""
        self._refused, self._reason = end, reason
        if end <= min(self.ends):
            self.is_settled = True


def asked(
    jobs: Iterable[JobRequest], offers: Offers, now: float, old_at: float
) -> dict[str, tuple[Shape, float]]:
    """Return the shape and the end of each job by its id.

    Parameters
    ----------
    jobs : iterable of JobRequest
    offers : Offers
        Many sets of names may be offered by the same nodes.
    now : float
    old_at : float
        Jobs that were submitted before may hold nodes without a known start.
    """
    shapes: defaultdict[tuple[object, ...], Shape] = defaultdict(Shape)
    found = {}
    for job in jobs:
        able, is_old = offers.nodes(job.needs), job.submitted_at <= old_at
        shape = shapes[job.devices, job.nodes, job.device_type, able, job.avoid, is_old]
        limit = inf if job.limit_seconds is None else job.limit_seconds
        end = now + limit + LATE_SECONDS
        shape.ends.append(end)
        found[job.job_id] = shape, end
    return found
