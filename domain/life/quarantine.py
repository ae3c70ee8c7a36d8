"""Quarantine of a node that failed attempts of two jobs for its own reasons, without a success.

A full disk or a failing device takes one job after another from the queue and fails it, faster than
a healthy node could run any. Failures of a node are therefore stored for a day, or until an attempt
succeeds on it or an operator resumes it. A failure counts if it is the node's own:

1. The node may be responsible for its reason (``domain.life.outcomes.RULES``), and the agent or the
scheduler observed it: the node's disk fails, or is full for two minutes, while the agent stages an
attempt, the agent cannot start a launcher, or the lease expired. Evidence that a job can write
itself does not count: a traceback, an exit code, ``result.json``, a dead launcher.
2. Neither the same job nor another one, shortly before or after, failed for the same reason on
another node. Otherwise the job, the store, the network, or the service itself is the cause.
3. Jobs that fail together when a node becomes silent count once.

Not here: storage of failures and notifications (``storage.attempts.nodes``), placement around such
a node (``domain.scheduling.decide``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lockstep.domain.life.outcomes import Reason

JOBS_MAX: Final = 2
"""Different jobs that a node may fail."""
SHOWN_MAX: Final = 5
"""Failures named in the reason."""
SILENCE: Final = frozenset({Reason.LOST, Reason.UNANSWERED})
"""Reasons that take all attempts of a node at once."""


@dataclass(frozen=True)
class NodeFailure:
    """An attempt that a node failed for a reason that may be its own."""

    node: str
    job_id: str
    reason: Reason
    at: float
    """Seconds since the epoch."""


def to_quarantine(failures: Sequence[NodeFailure], *, together_seconds: float) -> dict[str, str]:
    """Nodes to be given no more work, each with why.

    Parameters
    ----------
    failures : sequence of NodeFailure
        Of all nodes, as far as no success came after them.
    together_seconds : float
        Failures no further apart may have one cause.
    """
    found = {}
    for node in sorted({failure.node for failure in failures}):
        own = _own(node, failures, together_seconds)
        if len(own) >= JOBS_MAX:
            shown = ", ".join(
                f"{failure.reason} (job {failure.job_id})" for failure in own[:SHOWN_MAX]
            )
            found[node] = (
                f"it failed {len(own)} jobs for reasons of the node, with no success in between: "
                f"{shown}"
            )
    return found


def _own(node: str, failures: Sequence[NodeFailure], together_seconds: float) -> list[NodeFailure]:
    """The failures of a node that are its own, the first of each job, oldest first."""
    others = [failure for failure in failures if failure.node != node]
    own: dict[str, NodeFailure] = {}
    silent_at: float | None = None
    for failure in sorted(
        (each for each in failures if each.node == node), key=lambda each: each.at
    ):
        if any(_shared(failure, other, together_seconds) for other in others):
            continue
        if failure.reason in SILENCE:
            together = silent_at is not None and failure.at - silent_at <= together_seconds
            silent_at = failure.at
            if together:
                continue
        own.setdefault(failure.job_id, failure)
    return list(own.values())


def _shared(one: NodeFailure, other: NodeFailure, together_seconds: float) -> bool:
    return one.reason is other.reason and (
        one.job_id == other.job_id or abs(one.at - other.at) <= together_seconds
    )
