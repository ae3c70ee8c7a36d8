"""Every wait of the job's life, in one place, with its unit, its range and its reason.

The order of the numbers is a proof obligation, checked at construction: a node stops its own ranks
(fence) before the control plane may give the work away (lease), and the control plane waits a
little longer than the lease before it places again, so that two attempts never train at once.

The scheduler's environment sets them; its settings check the ranges. All programs read the values
from one row of the jobs database (``storage.control.agreed_timings``).

Not here: limits of sizes (``domain.limits``).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Final

from pydantic import ConfigDict, Field

_TWO_ATTEMPTS: Final = "two attempts of one job could run at the same time"
ORDER: Final = (
    (2, "heartbeat_seconds", "fence_seconds", _TWO_ATTEMPTS),
    (1, "fence_seconds", "lease_seconds", _TWO_ATTEMPTS),
    (1, "lease_seconds", "replace_after_seconds", _TWO_ATTEMPTS),
    (1, "cycle_seconds", "outage_seconds", "no lease would ever be declared expired"),
    (1, "outage_seconds", "lease_seconds", "an outage of the service could expire all leases"),
)
"""Proof obligations: a factor times the first wait is less than the second. Otherwise, the last."""


@dataclass(frozen=True)
class Timings:
    """Waits in seconds. Tests scale them with :meth:`scaled`, also beyond the ranges."""

    __pydantic_config__ = ConfigDict(use_attribute_docstrings=True)

    heartbeat_seconds: Annotated[float, Field(ge=0.5, le=300)] = 5.0
    """An agent renews the leases of all its assignments this often."""
    lease_seconds: Annotated[float, Field(ge=5, le=3_600)] = 60.0
    """An assignment not renewed for this long is lost."""
    fence_seconds: Annotated[float, Field(ge=4, le=3_600)] = 50.0
    """A launcher kills its ranks this long after the last renewal was sent."""
    replace_after_seconds: Annotated[float, Field(ge=6, le=7_200)] = 70.0
    """A lost attempt's job is placed again this long after its last renewal."""
    cycle_seconds: Annotated[float, Field(ge=0.1, le=60)] = 2.0
    """Interval at which the scheduler reads the database without a notification."""
    outage_seconds: Annotated[float, Field(ge=5, le=3_600)] = 30.0
    """A longer gap between reconcile cycles means that the service itself was down; no lease is
    then declared expired."""
    watch_seconds: Annotated[float, Field(ge=0.05, le=5)] = 0.25
    """Interval at which an agent checks its launchers, spools and stop requests."""
    sample_seconds: Annotated[float, Field(ge=1, le=3_600)] = 10.0
    """Interval at which the agent measures an attempt's use of the machine."""
    files_seconds: Annotated[float, Field(ge=1, le=3_600)] = 60.0
    """Interval at which an agent stores the files that a job has written."""
    stop_grace_seconds: Annotated[float, Field(ge=1, le=300)] = 5.0
    """From the graceful stop to SIGKILL, at least."""
    backoff_seconds: Annotated[float, Field(ge=0.1, le=3_600)] = 1.0
    """Longest wait before the first retry of a job; doubles with each, up to
    ``backoff_max_seconds``."""
    backoff_max_seconds: Annotated[float, Field(ge=1, le=86_400)] = 120.0
    """Longest wait before any retry of a job."""
    together_seconds: Annotated[float, Field(ge=1, le=86_400)] = 300.0
    """Failures of nodes that lie no further apart may have one cause, which is then none of the
    nodes'."""
    half_life_seconds: Annotated[float, Field(ge=3_600, le=31_536_000)] = 172_800.0
    """Use of devices of this age counts half for the shares of projects."""
    exit_stall_seconds: Annotated[float, Field(ge=1, le=3_600)] = 30.0
    """Once one rank has exited 0, the others have this long."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not 0 < getattr(self, field.name) < math.inf:
                raise ValueError(
                    f"{field.name} must be positive and finite, got {getattr(self, field.name)}"
                )
        for factor, small, large, otherwise in ORDER:
            less, more = getattr(self, small), getattr(self, large)
            if not factor * less < more:
                times = f"{factor} × " if factor > 1 else ""
                raise ValueError(
                    f"{times}{small} must be less than {large}, got {times}{less:g} and {more:g}: "
                    f"otherwise {otherwise}; lower LOCKSTEP_{small.upper()} or raise "
                    f"LOCKSTEP_{large.upper()}"
                )

    @classmethod
    def of(cls, values: Mapping[str, float]) -> Timings:
        """Return the timings that another program has stored.

        One of a neighbouring version may lack a wait, which then has its default, and may have
        others, which this version does not need.
        """
        return cls(
            **{field.name: values[field.name] for field in fields(cls) if field.name in values}
        )

    def changes(self, before: Timings) -> dict[str, str]:
        """Return the waits that differ, as ``old -> new``."""
        pairs = (
            (field.name, getattr(before, field.name), getattr(self, field.name))
            for field in fields(self)
        )
        return {name: f"{old:g} -> {new:g}" for name, old, new in pairs if old != new}

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
