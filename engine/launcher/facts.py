"""Observations of an attempt's ranks on this node.

Not here: who observes them (``engine.launcher.watch``), and what they mean
(``engine.launcher.outcome``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from lockstep.domain.life.attempt import StopFile
from lockstep.engine.launcher.stall.stalls import StallReport

Cause = Literal["fence", "stop", "exit_stall", "stall", "failure"]


@dataclass(frozen=True)
class Exit:
    """Exit of one rank."""

    rank: int
    code: int
    """Exit code, or the negative number of the signal."""
    time: float
    """Time of detection, in seconds since the epoch."""
    torn_down: bool
    """True if the gang was being ended already, so the launcher may have caused it. False before
    its first signal, and for SIGKILL that came before the launcher's."""
    early: bool = False
    """True if a rank of the engine exited before the end of the run."""

    @property
    def failed(self) -> bool:
        """True if the gang cannot continue without it."""
        return self.code != 0 or self.early


@dataclass
class Facts:
    """Observations of the watch. Complete once the watch has stopped."""

    ranks: tuple[int, ...] = ()
    """Ranks that were started here; empty until all were."""
    exits: list[Exit] = field(default_factory=list)
    """Exits in the order of their detection."""
    cause: Cause | None = None
    """Cause of the gang's end, unless the ranks ended by themselves."""
    stop: StopFile | None = None
    grace_over: bool = False
    """True if ranks had to be killed after the grace period of the stop."""
    left_behind: bool = False
    """True if rank 0 saved and exited for the stop in the middle of a step."""
    stalled: StallReport | None = None
    gang_failed: bool = False
    """True if the failure is one of a rank on another node."""

    def running(self) -> list[int]:
        """Ranks that have not ended."""
        ended = {exit_.rank for exit_ in self.exits}
        return [rank for rank in self.ranks if rank not in ended]
