"""Which of the ends of one gang's nodes is the gang's.

A gang over several nodes falls like dominoes. A rank is killed, and in the same millisecond the ranks of the other nodes
lose their connections to it. Time does not tell who was first: the killed rank's own node gives the ranks beside it a
grace and writes its outcome seconds later than the nodes that only lost a peer, and no two clocks need to agree. So the
*class* of an outcome decides:

* one that says why by itself (an exception, a signal, memory, a disk) is a **cause**, and ends the gang at once;
* one that only says that the others were gone, or that everybody here waited, is a **consequence**: it waits for the
  cause, for another node's lease to run out (then that node was the cause), or until nobody else is left to name one;
* a success or a stop on request is neither, and waits for the others: node rank 0 may still be storing the result. A part
  that its node has not claimed is waited for as well, because it has its share of the work to do; but not after a stop, which
  it could only be started for in vain.

Not here: how long a consequence waits for nodes that go on well, and writing it down (``storage.attempts.gangs``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from lockstep.domain.life.outcomes import Outcome, Reason

_STOPS: Final = frozenset({Reason.CANCELLED, Reason.TIMED_OUT, Reason.SHUTDOWN, Reason.PREEMPTED})


class Part(NamedTuple):
    """One node's part of a gang."""

    node_rank: int
    ended_at: float | None
    """None while it may still say something."""
    outcome: Outcome | None
    """What it has said so far; None also where it was ended by others."""
    claimed: bool = True
    """Whether its node has started it, or is about to."""


def is_consequence(outcome: Outcome) -> bool:
    """Whether it says no more than that ranks elsewhere did not answer."""
    return outcome.reason is Reason.NETWORK or (outcome.reason is Reason.STALL and outcome.rank is None)


def is_cause(outcome: Outcome) -> bool:
    """Whether it says by itself why the gang cannot go on."""
    return not (outcome.reason is Reason.SUCCEEDED or outcome.reason in _STOPS or is_consequence(outcome))


def decide(parts: Sequence[Part]) -> Outcome | None:
    """How the gang has ended, or None while that is open.

    Parameters
    ----------
    parts : sequence of Part
        All of them, at least one of which has ended with an outcome.
    """
    told = [
        (part.ended_at, part.node_rank, part.outcome) for part in parts if part.ended_at is not None and part.outcome
    ]
    by_time = [outcome for _at, _rank, outcome in sorted(told, key=lambda one: one[:2])]
    causes = [outcome for outcome in by_time if is_cause(outcome)]
    if causes:
        return causes[0]
    stops = [outcome for outcome in by_time if outcome.reason in _STOPS]
    if any(part.ended_at is None and (part.claimed or not stops) for part in parts):
        return None
    # Somebody asked for the stop, and connections that broke while ranks left are no news then.
    lesser = stops or list(filter(is_consequence, by_time))
    if lesser:
        return lesser[0]
    _at, _rank, outcome = min(told, key=lambda one: one[1])
    message = outcome.message if len(parts) == 1 else f"all ranks on {len(parts)} nodes succeeded"
    return outcome.model_copy(update={"message": message})
