"""Order of the forwards and backwards of a stage: one forward, one backward (1F1B).

A stage runs as many forwards ahead as stages follow it, and then one backward for each forward. So
it keeps the activations of at most as many micro-batches as there are stages from it on, and every
stage adds up gradients in the order of the micro-batches. Any number of micro-batches will do.

Not here: the messages between stages (``engine.parallel.links``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

BUBBLE_MAX: Final = 0.2
"""A plan with a larger bubble says how many micro-batches give this one."""


class Move(NamedTuple):
    """One move of a stage."""

    backward: bool
    micro_batch: int
    """Its index."""


def moves(count: int, stages: int, stage: int) -> Iterator[Move]:
    """Yield the moves of a stage in a step.

    Parameters
    ----------
    count : int
        Micro-batches of the step.
    stages, stage : int
        Their number, and the index of this one.
    """
    ahead = min(count, stages - 1 - stage)
    for index in range(count + ahead):
        if index < count:
            yield Move(backward=False, micro_batch=index)
        if index >= ahead:
            yield Move(backward=True, micro_batch=index - ahead)


def bubble(count: int, stages: int) -> float:
    """Return the part of a step in which a stage waits, if all stages take equally long."""
    return (stages - 1) / (count + stages - 1)


def enough(stages: int) -> int:
    """Return the smallest number of micro-batches whose bubble is at most :data:`BUBBLE_MAX`."""
    return round((stages - 1) * (1 / BUBBLE_MAX - 1))
