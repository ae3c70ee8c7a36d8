"""Outcome of a gang from the outcomes of its nodes.

A failure in a gang over several nodes spreads at once. A rank is killed, and in the same
millisecond the ranks of the other nodes lose their connections to it. Time does not show the first
failure: the killed rank's own node gives the ranks beside it a grace period and writes its outcome
seconds later than the nodes that only lost a peer, and the clocks may differ. Therefore the *class*
of an outcome decides:

* an outcome with a reason of its own (an exception, a signal, memory, a disk) is a **cause**. The
  first one that is reported is the gang's outcome. The ranks of the other nodes are ended, and the
  gang ends once each node has sent what these wrote;
* an outcome that only reports lost or waiting ranks is a **consequence**. It waits for the cause,
  for the lease of another node to expire (that node is then the cause), or until no other node is
  left. If the connection was lost between nodes that run on, it becomes the cause;
* a success or a stop on request is neither, and waits for the others: node rank 0 may still be
  storing the result. An unclaimed assignment is waited for as well, except after a stop. Where a
  node alone is stopped, before its ranks had started, the storage makes this the cause.

Not here: the time limits, and storing cause and outcome (``storage.attempts.gangs``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, get_args

from lockstep.domain.life.grace import StopReason
from lockstep.domain.life.outcomes import Outcome, Reason

_STOPS: Final = frozenset(map(Reason, get_args(StopReason)))


class GangMember(NamedTuple):
    """One node's part of a gang."""

    node_rank: int
    ended_at: float | None
    """None while it may still report an outcome."""
    outcome: Outcome | None
    """Its outcome so far; None also if it was ended by others."""
    claimed: bool = True
    """True if its node has started it, or is about to."""


def is_consequence(outcome: Outcome) -> bool:
    """Return whether an outcome only reports that ranks elsewhere did not answer."""
    return outcome.reason is Reason.NETWORK or (
        outcome.reason is Reason.STALL and outcome.rank is None
    )


def is_cause(outcome: Outcome) -> bool:
    """Return whether an outcome explains by itself why the gang cannot continue."""
    return not (
        outcome.reason is Reason.SUCCEEDED or outcome.reason in _STOPS or is_consequence(outcome)
    )


def decide(parts: Sequence[GangMember], cause: Outcome | None) -> Outcome | None:
    """Return the outcome of the gang, or None while it is open.

    Parameters
    ----------
    parts : sequence of GangMember
        All of them. Without a cause at least one has ended with an outcome.
    cause : Outcome or None
        The gang's outcome, if it is known before all parts have ended.
    """
    if cause is not None:
        return None if any(part.ended_at is None and part.claimed for part in parts) else cause
    return _decide_without_cause(parts)


def _decide_without_cause(parts: Sequence[GangMember]) -> Outcome | None:
    ended = [
        (part.ended_at, part.node_rank, part.outcome)
        for part in parts
        if part.ended_at is not None and part.outcome
    ]
    by_time = [outcome for _at, _rank, outcome in sorted(ended, key=lambda one: one[:2])]
    stops = [outcome for outcome in by_time if outcome.reason in _STOPS]
    if any(part.ended_at is None and (part.claimed or not stops) for part in parts):
        return None
    # After a stop on request, broken connections between leaving ranks carry no information.
    lesser = stops or list(filter(is_consequence, by_time))
    if lesser:
        return lesser[0]
    _at, _rank, outcome = min(ended, key=lambda one: one[1])
    message = outcome.message if len(parts) == 1 else f"all ranks on {len(parts)} nodes succeeded"
    return outcome.model_copy(update={"message": message})
