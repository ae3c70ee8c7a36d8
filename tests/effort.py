"""Effort of a call, counted instead of timed: it is the same on a busy machine.

Not here: the time of a call. No test may depend on it.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Effort(NamedTuple, Generic[T]):
    """Result of a call, and the work that it took in its own thread."""

    result: T
    lines: int
    """Lines of Python that were executed; each turn of a loop counts."""
    peak_bytes: int
    """Maximum memory in use, numpy's arrays included."""


def effort_of(call: Callable[[], T]) -> Effort[T]:
    """Call ``call`` and count its work."""
    lines = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    tracemalloc.start()
    sys.settrace(trace)
    try:
        result = call()
    finally:
        sys.settrace(before)
        _now, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return Effort(result, lines, peak_bytes)
