"""The life of a job, as one table.

Every state a job can be in, and every step it may take, is written in this file and nowhere else. Code that changes a
job's state names the step it wants; ``storage.attempts.transitions.take`` applies it with an ``UPDATE ... WHERE state IN sources``,
so that of two writers racing for one job exactly one wins and the other is told.

Invariants, each with a test in ``tests/domain/test_lifecycle.py``: a terminal state has no way out; every state can be
reached from ``queued``; nothing reaches ``succeeded`` except ``running``.

Not here: a *request* to stop (``Intent``, a column: the state changes only when it has happened), which step an
outcome leads to (``domain.life.outcomes``), and who may ask for one (``api``).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class JobState(StrEnum):
    """Where a job is. The value is what the database and the API carry."""

    QUEUED = "queued"
    """Accepted and waiting for devices, or for the end of a backoff. No process of it exists. The scheduler takes it out."""
    STARTING = "starting"
    """Placed: an attempt holds its devices and ranks are being launched. If its node never answers, the lease ends it."""
    RUNNING = "running"
    """All ranks have met; of a script: its processes have started. The attempt's outcome takes it out; if its node falls
    silent, the lease does."""
    SUCCEEDED = "succeeded"
    """Every rank ended well. Final."""
    FAILED = "failed"
    """Its last attempt failed, and the same would happen again or no retry is left. Final."""
    CANCELLED = "cancelled"
    """Somebody cancelled it, and no process of it is left. Final."""


class AttemptState(StrEnum):
    """Where one attempt at a job is. At most one attempt of a job is not ended (a partial unique index)."""

    STARTING = "starting"
    """It holds its devices; ranks are being launched."""
    RUNNING = "running"
    """All ranks have met; of a script: its processes have started."""
    ENDED = "ended"
    """Its outcome is known. It never changes again."""


class AssignmentState(StrEnum):
    """Where one node's part of an attempt is."""

    ASSIGNED = "assigned"
    """Written by the scheduler; the node has not answered yet."""
    CLAIMED = "claimed"
    """The node's agent has taken it and starts, or has started, a launcher."""
    ENDED = "ended"
    """Its launcher is gone and its outcome is known; the node may still be sweeping processes."""
    RELEASED = "released"
    """No process of it is left on the node; its devices are free."""


class Intent(StrEnum):
    """What somebody wants to happen to a live attempt. A column, read back by the agent's heartbeat."""

    CANCEL = "cancel"
    """A person asked for it: the job ends cancelled."""
    TIMEOUT = "timeout"
    """The job ran for longer than its ``timeout_seconds``: it ends failed."""
    SHUTDOWN = "shutdown"
    """The service is being stopped: the job is queued again, uncharged, and goes on at the next start."""


class Step(NamedTuple):
    """One legal change of a job's state."""

    sources: frozenset[JobState]
    target: JobState
    cause: str


_LIVE = frozenset({JobState.STARTING, JobState.RUNNING})

STEPS: Final[dict[str, Step]] = {
    "place": Step(
        frozenset({JobState.QUEUED}),
        JobState.STARTING,
        "the scheduler assigned devices and created an attempt",
    ),
    "run": Step(
        frozenset({JobState.STARTING}),
        JobState.RUNNING,
        "all ranks are connected, or the processes of a script have started",
    ),
    "succeed": Step(frozenset({JobState.RUNNING}), JobState.SUCCEEDED, "all ranks ended successfully"),
    "fail": Step(_LIVE, JobState.FAILED, "an attempt failed permanently, or no retry is left"),
    "requeue": Step(_LIVE, JobState.QUEUED, "the attempt was lost, preempted, or failed with a retryable error"),
    "cancel": Step(
        frozenset({JobState.QUEUED}) | _LIVE,
        JobState.CANCELLED,
        "a user cancelled it and none of its processes is running",
    ),
}
"""Every legal step of a job, by name."""

TERMINAL: Final = frozenset(JobState) - frozenset(source for step in STEPS.values() for source in step.sources)
"""States without a way out, derived from the table."""
