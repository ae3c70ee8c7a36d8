"""Every wait of the job's life, in one place, with its unit and its reason.

The order of the numbers is a proof obligation, checked at construction: a node stops its own ranks
(fence) before the control plane may give the work away (lease), and the control plane waits a
little longer than the lease before it places again, so that two attempts never train at once.

Not here: limits of sizes (``domain.limits``), and reading these from the environment (each
program's ``settings``).
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class Timings:
    """Waits in seconds. Tests scale them with :meth:`scaled`."""

    heartbeat_seconds: float = 5.0
    """An agent renews the leases of all its assignments this often."""
    lease_seconds: float = 60.0
    """An assignment not renewed for this long is lost."""
    fence_seconds: float = 50.0
    """A launcher kills its ranks this long after the last renewal was *sent*."""
    replace_after_seconds: float = 70.0
    """A lost attempt's job is placed again this long after its last renewal."""
    cycle_seconds: float = 2.0
    """Interval at which the scheduler reads the database without a notification."""
    outage_seconds: float = 30.0
    """A longer gap between reconcile cycles means that the control plane itself was away; no lease
    is then declared expired."""
    watch_seconds: float = 0.25
    """Interval at which an agent checks its launchers, spools and stop requests."""
    sample_seconds: float = 10.0
    """Interval at which the agent measures an attempt's use of the machine."""
    stop_grace_seconds: float = 5.0
    """From the graceful stop to SIGKILL, at least (``domain.life.grace``)."""
    backoff_seconds: float = 1.0
    """Longest wait before the first retry of a job; doubles with each, up to
    ``backoff_max_seconds``."""
    backoff_max_seconds: float = 120.0
    together_seconds: float = 300.0
    """Failures of nodes that lie no further apart may have one cause, which is then none of the
    nodes'."""
    exit_stall_seconds: float = 30.0
    """Once one rank has exited 0, the others have this long."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not 0 < getattr(self, field.name) < math.inf:
                raise ValueError(
                    f"{field.name} must be positive and finite, got {getattr(self, field.name)}"
                )
        if (
            not 2 * self.heartbeat_seconds
            < self.fence_seconds
            < self.lease_seconds
            < self.replace_after_seconds
        ):
            raise ValueError(
                "timings must satisfy 2 × heartbeat < fence < lease < replace_after, got 2 × "
                f"{self.heartbeat_seconds}, {self.fence_seconds}, {self.lease_seconds}, "
                f"{self.replace_after_seconds}: otherwise two attempts of one job could run at "
                "the same time"
            )

    def scaled(self, factor: float) -> Timings:
        """All waits multiplied by ``factor`` (tests use factors below 1)."""
        return replace(
            self, **{field.name: getattr(self, field.name) * factor for field in fields(self)}
        )

    def backoff(self, failures: int, *, who: str) -> float:
        """Return the seconds to wait before the next attempt.

        0 without a failure, then doubling up to a bound.

        The wait is drawn from ``who`` in the upper half of that interval: jobs that failed
        together, because the store or a node was away, do not return together.

        Parameters
        ----------
        failures : int
            In a row.
        who : str
            Name of this wait: the same name always waits equally long.
        """
        if failures <= 0:
            return 0.0
        longest = min(self.backoff_max_seconds, self.backoff_seconds * 2.0 ** min(failures - 1, 30))
        drawn = int.from_bytes(hashlib.blake2b(who.encode(), digest_size=8).digest()) / 2**64
        return longest * (0.5 + 0.5 * drawn)
