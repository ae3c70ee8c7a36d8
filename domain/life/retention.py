"""Retention of a run's checkpoints: the newest, and the best by one metric.

The same rule applies on a node, where the engine prunes its own folder, and in the store, where the
agent prunes published checkpoints. Both apply it independently.

Not here: the time of a checkpoint (``engine.checkpoints.saving``), deletion
(``engine.checkpoints.checkpoint``, ``storage.attempts.checkpoints``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def best_of(newest_first: Sequence[T], value: Callable[[T], float | None]) -> T | None:
    """Return the checkpoint with the lowest value; of equal ones the earliest.

    Parameters
    ----------
    newest_first : sequence
    value : callable
        A checkpoint's value; None if the metric was not measured. Neither None nor NaN or an
        infinity is ever best.

    Returns
    -------
    T or None
        None if no checkpoint has a finite value.
    """
    best: T | None = None
    lowest = math.inf
    for each in newest_first:
        found = value(each)
        # Equal counts, because later items in this order were saved earlier.
        if found is not None and math.isfinite(found) and found <= lowest:
            best, lowest = each, found
    return best


def superseded(
    newest_first: Sequence[T], keep_last: int, value: Callable[[T], float | None]
) -> list[T]:
    """Return the checkpoints to delete: all but the newest ``keep_last`` and the best.

    Parameters
    ----------
    newest_first : sequence
    keep_last : int
        At least 1.
    value : callable
        As in :func:`best_of`. If no checkpoint has a value, none is best.
    """
    best = best_of(newest_first, value)
    return [each for each in newest_first[keep_last:] if each is not best]
