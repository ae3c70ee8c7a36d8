"""Which checkpoints of a run are kept: the newest, and the best by one metric.

The same rule holds on a node, where the engine prunes its own folder, and in the store, where the agent prunes what
was published; neither asks the other.

Not here: when a checkpoint is written (``engine.checkpoints.saving``) and how one is deleted (``engine.checkpoints.checkpoint``,
``storage.attempts.checkpoints``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def best_of(newest_first: Sequence[T], value: Callable[[T], float | None]) -> T | None:
    """The checkpoint with the lowest value; of equal ones the earliest.

    Parameters
    ----------
    newest_first : sequence
    value : callable
        A checkpoint's value; None where the metric was not measured. Neither that nor NaN or an infinity is ever best.

    Returns
    -------
    T or None
        None where no checkpoint has a finite value.
    """
    best: T | None = None
    lowest = math.inf
    for each in newest_first:
        found = value(each)
        # Equal counts, because what comes later in this order was saved earlier.
        if found is not None and math.isfinite(found) and found <= lowest:
            best, lowest = each, found
    return best


def superseded(newest_first: Sequence[T], keep_last: int, value: Callable[[T], float | None]) -> list[T]:
    """What may be deleted: all but the newest ``keep_last`` and the best.

    Parameters
    ----------
    newest_first : sequence
    keep_last : int
        At least 1.
    value : callable
        As in :func:`best_of`. Where no checkpoint has a value, none is best.
    """
    best = best_of(newest_first, value)
    return [each for each in newest_first[keep_last:] if each is not best]
