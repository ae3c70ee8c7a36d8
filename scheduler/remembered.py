"""Memory of one process across its cycles. Each cycle is right without it.

Not here: the cycle (``scheduler.cycle``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lockstep.storage.control.averages import Averages


@dataclass
class Remembered:
    """Caches across cycles."""

    unreadable: dict[str, str] = field(default_factory=dict)
    """Jobs whose spec this version cannot read, by id, with the reason. A spec never changes, and
    parsing all of them in each cycle would be slow. These jobs take no devices from others."""
    averages: Averages = field(default_factory=Averages)
