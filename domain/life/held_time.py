"""Device-seconds of an assignment: productive, repeated and idle.

Not here: the rows about them (``storage.attempts.ledger``).
"""

from __future__ import annotations

from typing import NamedTuple


class StepRange(NamedTuple):
    """Steps that an attempt reported."""

    first: int
    last: int


class AssignmentTimes(NamedTuple):
    """Times of an assignment, in seconds since the epoch."""

    placed_at: float
    running_at: float | None
    """Start of the attempt's run; None if it never ran."""
    ended_at: float
    """End of the run on this node."""
    released_at: float


class HeldTime(NamedTuple):
    """Device-seconds of an assignment. Their sum is the time that it held its devices."""

    productive: float
    repeated: float
    """Steps that an earlier attempt had computed and lost."""
    idle: float
    """Start, and clearing after the end."""


def held_time(times: AssignmentTimes, devices: int, repeated: float = 0.0) -> HeldTime:
    """Divide the time that an assignment held its devices.

    Parameters
    ----------
    times : AssignmentTimes
    devices : int
    repeated : float, optional
        Part of the run that was repeated, from 0 to 1.
    """
    held = max(0.0, times.released_at - times.placed_at) * devices
    # A clock that was set back makes no part negative.
    ends = min(times.ended_at, times.released_at)
    begins = ends if times.running_at is None else max(times.running_at, times.placed_at)
    ran = min(held, max(0.0, ends - begins) * devices)
    again = ran * repeated
    return HeldTime(ran - again, again, held - ran)


def repeated_part(kind: str, steps: StepRange | None, reached: int | None) -> float:
    """Return the part of an attempt's steps that an earlier attempt had computed.

    Parameters
    ----------
    kind : str
        Of the job.
    steps : StepRange or None
        Of the attempt; None if it reported none.
    reached : int or None
        Largest step of the earlier attempts.
    """
    if steps is None or reached is None:
        return 0.0
    if kind == "script" and steps.first == 1:
        # Perhaps a script without steps, whose lines are numbered from 1 in each attempt.
        return 0.0
    again = min(reached, steps.last) - steps.first + 1
    return max(0, again) / (steps.last - steps.first + 1)
