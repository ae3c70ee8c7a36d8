"""Tensors and arrays that share memory, each an entry of its own.

A checkpoint holds their values, and not that a write to one is a write to the other. What shares
memory at the start does so again in a resumed run. What has left it since gets memory of its own.

Not here: one object under two names, which is a reference (``engine.state.walk``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from lockstep.engine.state.reasons import Reasons
from lockstep.engine.state.values import local
from lockstep.engine.state.walk import ARRAY, OWN, TENSOR, Entry


def sharing(entries: Mapping[str, Entry]) -> dict[str, str]:
    """Return the names of values outside of the weights → the first value in the same memory.

    A weight comes first. Two rows of one tensor have no byte in common, so they share no memory. A
    tensor with a graph is a result of one call, and no later one writes to it.
    """
    numbers = [
        entry
        for entry in entries.values()
        if entry.kind in (OWN, TENSOR, ARRAY) and getattr(entry.value, "grad_fn", None) is None
    ]
    found: dict[str, str] = {}
    for places in _overlapping((*_bytes_of(each.value), i) for i, each in enumerate(numbers)):
        ordered = sorted(places, key=lambda place: (numbers[place].kind != OWN, place))
        first, *others = (numbers[place] for place in ordered)
        found |= {other.name: first.name for other in others if other.kind != OWN}
    return found


def sharing_changed(before: Mapping[str, str], now: Mapping[str, str]) -> Reasons:
    """Return the values that share memory with others than at the start."""
    return {
        name: f"it shares memory with {now[name]}, "
        f"and at the start with {before.get(name, 'nothing')}"
        for name in sorted(now)
        if before.get(name) != now[name]
    }


def _overlapping(parts: Iterable[tuple[int, int, int]]) -> Iterator[list[int]]:
    """Yield the places of the parts that overlap, each with its bytes and its place."""
    places: list[int] = []
    end = 0
    for first, last, place in sorted(parts):
        if last <= first:  # No memory.
            continue
        if first >= end and places:
            yield places
            places = []
        places.append(place)
        end = max(end, last)
    if places:
        yield places


def _bytes_of(value: Any) -> tuple[int, int]:
    """Return the address of a value's first byte, and the one after its last; 0 for none."""
    if isinstance(value, np.ndarray):
        return byte_bounds(value) if value.size else (0, 0)
    try:
        tensor = local(value)
        first = tensor.data_ptr()
        steps = zip(tensor.shape, tensor.stride(), strict=True)
    except (RuntimeError, NotImplementedError):  # Sparse, or without values.
        return 0, 0
    reach = sum((size - 1) * step for size, step in steps)
    return first, first + (reach + 1) * tensor.element_size()
