"""State that a dataset holds. No checkpoint has it, so it is only watched.

Not here: the state of the task and of the model (``engine.state.inventory``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from lockstep.engine.state.rules import UserCode
from lockstep.engine.state.snapshot import Snapshot
from lockstep.engine.state.values import bytes_of
from lockstep.engine.state.walk import GENERATOR, Entry, Walk

BYTES_MAX: Final = 1 << 26
"""Bytes that are watched. Larger values are left out: samples, in most cases."""


def generators_of(dataset: object) -> Snapshot:
    """Return the states of the random generators that a dataset holds."""
    return Snapshot(each for each in _entries(dataset) if each.kind == GENERATOR)


def values_of(dataset: object, apart: Iterable[object]) -> Snapshot:
    """Return the small values that a dataset holds, without the objects ``apart``."""
    return Snapshot(_small(_entries(dataset, apart)))


def _entries(dataset: object, apart: Iterable[object] = ()) -> Iterable[Entry]:
    walk = Walk(UserCode(None, [dataset]), left_out=apart, datasets=True)
    walk.root("dataset", dataset)
    return walk.entries.values()


def _small(entries: Iterable[Entry]) -> Iterator[Entry]:
    left = BYTES_MAX
    for entry in entries:
        size = bytes_of(entry.value)
        if size <= left:
            left -= size
            yield entry
