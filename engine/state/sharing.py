"""Tensors and arrays that share memory, each an entry of its own.

A checkpoint holds their values, and not that a write to one is a write to the other. What shares
memory at the start does so again in a resumed run.

Not here: one object under two names, which is a reference (``engine.state.walk``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from lockstep.engine.state.reasons import Reasons
from lockstep.engine.state.values import local
from lockstep.engine.state.walk import ARRAY, OWN, TENSOR, Entry


def sharing(entries: Mapping[str, Entry]) -> dict[str, str]:
    """Return the names of values outside of the weights → the first value in the same memory."""
    first: dict[int, str] = {}
    found = {}
    for name, entry in entries.items():
        if entry.kind not in (OWN, TENSOR, ARRAY) or not (memory := _memory_of(entry.value)):
            continue
        other = first.setdefault(memory, name)
        if other != name and entry.kind != OWN:
            found[name] = other
    return found


def sharing_changed(before: Mapping[str, str], now: Mapping[str, str]) -> Reasons:
    """Return the values that share memory with others than at the start."""
    return {
        name: f"it shares memory with {now.get(name, 'nothing')}, "
        f"and at the start with {before.get(name, 'nothing')}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    }


def _memory_of(value: Any) -> int:
    """Return the address of a value's memory; 0 if it has none."""
    if isinstance(value, Tensor):
        try:
            return local(value).untyped_storage().data_ptr()
        except (RuntimeError, NotImplementedError):  # Sparse, or without values.
            return 0
    while isinstance(value.base, np.ndarray):
        value = value.base
    address: int = value.__array_interface__["data"][0] if value.size else 0
    return address
