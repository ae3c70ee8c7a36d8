"""Report of one reconcile cycle.

Not here: the cycle (``scheduler.reconcile``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lockstep.domain.life.timings import Timings


@dataclass
class CycleReport:
    """Counts of one reconcile cycle."""

    held: bool = False
    """False when another scheduler has the lease."""
    timings: Timings | None = None
    """Timings of the cycle; None without the lease."""
    again: bool = False
    """True if the next cycle should follow at once."""
    spared: int = 0
    lost: int = 0
    quarantined: int = 0
    overdue: int = 0
    sealed: int = 0
    placed: int = 0
    waiting: int = 0
    notified_again: int = 0
    accounted: int = 0
    expired: int = 0
    failed: list[str] = field(default_factory=list)
    """Failed units of work: kind and id."""
