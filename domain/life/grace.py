"""Grace of a stop: the time from the request to the kill of an attempt's processes.

Every stop uses :func:`grace_of`: cancel, timeout, preemption, the end of an agent, a signal to the
launcher. A train job needs it for its last checkpoint, and loses steps if it is too short. It is a
limit: a stop whose checkpoint is durable earlier ends earlier.

A script gets ``stop_grace_seconds`` of its spec, or else half a minute. A train job gets three
times the duration of one save, at most ``GRACE_SECONDS_MAX``, and never less than its spec gives. A
stop may begin while a save is under way. It then waits for the step (half the grace at most), and
saves again.

Not here: the request itself (``domain.life.attempt.StopFile``), and the other waits
(``domain.life.timings``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import BaseModel, Field

from lockstep.domain import limits
from lockstep.domain.life.lifecycle import Intent
from lockstep.domain.life.timings import Timings

GRACE_SECONDS_MAX: Final = float(limits.STOP_GRACE_SECONDS_MAX)
"""Limit of a train job's grace. A node must become free at some time."""
AGENT_END_SECONDS_MAX: Final = 450.0
"""Limit of an agent's orderly end: the longest grace, the kill, and the upload of the last
checkpoints. The programs that stop an agent wait for so long."""
SCRIPT_SECONDS: Final = 30.0
"""Grace of a script whose spec gives none: many save only after the signal."""
LEAST_SECONDS: Final = Timings().stop_grace_seconds
"""Least grace of a train job, and of a script whose spec gives none, by the default timings."""
_SAVES: Final = 3
_BYTES_PER_SECOND: Final = 100e6
"""Rate of a slow disk or a network file system, for the forecast before the first save."""

StopReason = Literal["cancelled", "timed_out", "paused", "requeued", "shutdown", "preempted"]
Cause = StopReason | Literal["now"]
"""Cause of a stop. ``now`` is a request to kill without a checkpoint."""
REASON_OF: Final[Mapping[Intent, StopReason]] = {
    Intent.CANCEL: "cancelled",
    Intent.TIMEOUT: "timed_out",
    Intent.PAUSE: "paused",
    Intent.REQUEUE: "requeued",
    Intent.SHUTDOWN: "shutdown",
}


class SaveTime(BaseModel, frozen=True):
    """Duration of one checkpoint, from the collection of the state to its durable files."""

    seconds: float = Field(ge=0, allow_inf_nan=False)
    measured: bool
    """False for a forecast."""

    @classmethod
    def forecast(cls, state_bytes: float) -> SaveTime:
        """Return the forecast for a state of this size."""
        return cls(seconds=state_bytes / _BYTES_PER_SECOND, measured=False)

    def words(self) -> str:
        """Name the save and its duration: ``the last checkpoint, 14 s``."""
        name = "the last checkpoint" if self.measured else "the forecast of a checkpoint"
        return f"{name}, {max(0.1, self.seconds):.3g} s"


class Grace(BaseModel, frozen=True):
    """Grace of one stop, and its reason."""

    seconds: float
    reason: str

    def sentence(self) -> str:
        """Return the grace and its reason: ``at most 42 s: 3 × the last checkpoint, 14 s``."""
        if self.seconds == 0:
            return f"at once: {self.reason}"
        return f"at most {self.seconds:g} s: {self.reason}"


@dataclass(frozen=True)
class StoppedJob:
    """Facts about a job that decide its grace."""

    kind: str
    save: SaveTime | None = None
    """None while no step can be lost, and for a script."""
    least_seconds: float = LEAST_SECONDS
    given_seconds: float | None = None
    """``stop_grace_seconds`` of its spec."""


def grace_of(job: StoppedJob, cause: Cause) -> Grace:
    """Return the time that a job's processes have after a request to stop."""
    if cause == "now":
        return Grace(seconds=0.0, reason="it is killed without a checkpoint")
    if job.kind != "train":
        return _of_script(job)
    least = max(job.least_seconds, job.given_seconds or 0.0)
    if job.save is None:
        return Grace(seconds=least, reason="no step is complete, so there is nothing to save")
    wanted = float(math.ceil(_SAVES * job.save.seconds))
    reason = f"{_SAVES} × {job.save.words()}"
    if wanted <= least:
        return Grace(seconds=least, reason=f"the least, because {reason}, is less")
    if wanted > GRACE_SECONDS_MAX:
        return Grace(
            seconds=max(least, GRACE_SECONDS_MAX), reason=f"the limit, because {reason}, is more"
        )
    return Grace(seconds=wanted, reason=reason)


def _of_script(job: StoppedJob) -> Grace:
    if job.given_seconds is not None:
        return Grace(seconds=job.given_seconds, reason="stop_grace_seconds of the job")
    seconds = max(job.least_seconds, SCRIPT_SECONDS)
    return Grace(seconds=seconds, reason="the time of a script that gives none")
