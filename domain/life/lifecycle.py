"""Life cycle of a job, as one table.

Every state of a job and every transition is defined in this file and nowhere else. Code that
changes a job's state names the transition; ``storage.attempts.transitions.take`` applies it with an
``UPDATE ... WHERE state IN sources``, so exactly one of two concurrent writers wins and the other
is notified.

Invariants, each with a test in ``tests/domain/test_lifecycle.py``: a terminal state has no way out;
every state can be reached from ``queued``; nothing reaches ``succeeded`` except ``running``.

Not here: a *request* to stop (``Intent``, a column: the state changes only when it has happened),
the transition of an outcome (``domain.life.retrying``), permissions (``api``).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class JobState(StrEnum):
    """State of a job. The value is that of the database and the API."""

    QUEUED = "queued"
    """Accepted and waiting for devices, or for the end of a backoff. No process of it exists. The
    scheduler takes it out."""
    STARTING = "starting"
    """Placed: an attempt holds its devices and ranks are being launched. If its node never answers,
    the lease ends it."""
    RUNNING = "running"
    """All ranks have met; of a script: its processes have started. The attempt's outcome takes it
    out; if its node falls silent, the lease does."""
    PAUSED = "paused"
    """Stopped by a user until a user resumes it: no process of it exists, and it waits for nothing.
    Its age stays."""
    SUCCEEDED = "succeeded"
    """Every rank ended well. Final."""
    FAILED = "failed"
    """Its last attempt failed, and the same would happen again or no retry is left. Final."""
    CANCELLED = "cancelled"
    """Cancelled by a user, with no process left. Final."""


class AttemptState(StrEnum):
    """State of one attempt of a job.

    At most one attempt of a job is not ended (a partial unique index).
    """

    STARTING = "starting"
    """It holds its devices; ranks are being launched."""
    RUNNING = "running"
    """All ranks have met; of a script: its processes have started."""
    ENDED = "ended"
    """Its outcome is known. It never changes again."""


class AssignmentState(StrEnum):
    """State of one assignment, the part of an attempt on one node."""

    ASSIGNED = "assigned"
    """Written by the scheduler; the node has not answered yet."""
    CLAIMED = "claimed"
    """The node's agent has taken it and starts, or has started, a launcher."""
    ENDED = "ended"
    """Its launcher is gone and its outcome is known; the node may still be sweeping processes."""
    RELEASED = "released"
    """No process of it is left on the node; its devices are free."""


class Intent(StrEnum):
    """Requested change to a live attempt. A column, read by the agent's heartbeat."""

    CANCEL = "cancel"
    """Requested by a user: the job ends cancelled."""
    TIMEOUT = "timeout"
    """The job ran for longer than its ``timeout_seconds``: it ends failed."""
    PAUSE = "pause"
    """Requested by a user: the job saves, ends, and is paused."""
    REQUEUE = "requeue"
    """Requested by a user: the job saves, ends, and is queued again."""
    SHUTDOWN = "shutdown"
    """The service is being stopped: the job is queued again, uncharged, and continues at the next
    start."""


class Transition(NamedTuple):
    """One legal change of a job's state."""

    sources: frozenset[JobState]
    target: JobState
    cause: str


_LIVE = frozenset({JobState.STARTING, JobState.RUNNING})

TRANSITIONS: Final[dict[str, Transition]] = {
    "place": Transition(
        frozenset({JobState.QUEUED}),
        JobState.STARTING,
        "the scheduler assigned devices and created an attempt",
    ),
    "run": Transition(
        frozenset({JobState.STARTING}),
        JobState.RUNNING,
        "all ranks are connected, or the processes of a script have started",
    ),
    "succeed": Transition(
        frozenset({JobState.RUNNING}), JobState.SUCCEEDED, "all ranks ended successfully"
    ),
    "fail": Transition(
        _LIVE, JobState.FAILED, "an attempt failed permanently, or no retry is left"
    ),
    "requeue": Transition(
        _LIVE, JobState.QUEUED, "the attempt was lost, preempted, or failed with a retryable error"
    ),
    "pause": Transition(
        frozenset({JobState.QUEUED}) | _LIVE,
        JobState.PAUSED,
        "a user paused it and none of its processes is running",
    ),
    "resume": Transition(frozenset({JobState.PAUSED}), JobState.QUEUED, "a user resumed it"),
    "cancel": Transition(
        frozenset({JobState.QUEUED, JobState.PAUSED}) | _LIVE,
        JobState.CANCELLED,
        "a user cancelled it and none of its processes is running",
    ),
}
"""Every legal transition of a job, by name."""

TERMINAL: Final = frozenset(JobState) - frozenset(
    source for transition in TRANSITIONS.values() for source in transition.sources
)
"""States without a way out, derived from the table."""
