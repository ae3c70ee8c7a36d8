"""Breakdown of a step's time as a partition: the parts add up to the whole by construction.

Between two marks all time belongs to the part that the second mark names. On the CPU a mark is a
reading of the clock. On CUDA it is an event on the current stream, read a step later, so marking
never waits for the device. The current phase is also written to the rank's heartbeat.

Not here: the list of parts (``domain.training.metrics``), the callers (``engine.loop.trainer``,
``engine.step.gradient``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

import torch

from lockstep.engine.runtime.device import is_accelerator, module_of
from lockstep.engine.runtime.heartbeat import Heartbeat

Parts = dict[str, float]
"""Seconds by part."""

_WITH_MESSAGES: Final = ("forward", "backward", "data")


class Timeline(Protocol):
    """The marks of one rank."""

    doing: str
    """Part of the step since the last mark."""

    def begin(self) -> None:
        """Start a step where the one before ended."""

    def mark(self, part: str, then: str = "other") -> None:
        """Everything since the last mark was ``part``; from here on the rank does ``then``."""

    def end(self) -> StepMarks:
        """The marks of this step, which may be read later."""


class StepMarks(Protocol):
    """The marks of one finished step."""

    def parts(self) -> Parts:
        """Seconds by part; on CUDA this waits until the device has passed the last mark."""


class _HostMarks:
    def __init__(self, start: float, marks: list[tuple[str, float]]):
        self._start, self._marks = start, marks

    def parts(self) -> Parts:
        parts: Parts = {}
        last = self._start
        for part, at in self._marks:
            parts[part] = parts.get(part, 0.0) + at - last
            last = at
        return parts


class HostTimeline:
    """Marks by the host's clock."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        self._heartbeat, self.doing = heartbeat, "other"
        self._last = time.monotonic()
        self._start = self._last
        self._marks: list[tuple[str, float]] = []

    def begin(self) -> None:
        self._start, self._marks = self._last, []

    def mark(self, part: str, then: str = "other") -> None:
        self._last, self.doing = self._heartbeat.mark(then), then
        self._marks.append((part, self._last))

    def end(self) -> StepMarks:
        return _HostMarks(self._start, self._marks)


class _DeviceMarks:
    def __init__(self, start: Any, marks: list[tuple[str, Any]]):
        self._start, self._marks = start, marks

    def parts(self) -> Parts:
        parts: Parts = {}
        last = self._start
        if self._marks:
            self._marks[-1][1].synchronize()
        for part, event in self._marks:
            parts[part] = parts.get(part, 0.0) + last.elapsed_time(event) / 1000
            last = event
        return parts


class DeviceTimeline:
    """Marks by events on the device's current stream."""

    def __init__(self, heartbeat: Heartbeat, device: torch.device) -> None:
        self._heartbeat, self._module, self.doing = heartbeat, module_of(device), "other"
        self._last = self._event()
        self._start = self._last
        self._marks: list[tuple[str, Any]] = []

    def begin(self) -> None:
        self._start, self._marks = self._last, []

    def mark(self, part: str, then: str = "other") -> None:
        self._heartbeat.mark(then)
        self.doing, self._last = then, self._event()
        self._marks.append((part, self._last))

    def end(self) -> StepMarks:
        return _DeviceMarks(self._start, self._marks)

    def _event(self) -> Any:
        event = self._module.Event(enable_timing=True)
        event.record()
        return event


@contextmanager
def marked(timeline: Timeline | None, part: str) -> Iterator[None]:
    """Count the time of a message between parts of one copy of a model by itself.

    Only in forward and backward, and after the last backward, where a rank waits for samples.
    """
    if timeline is None or timeline.doing not in _WITH_MESSAGES:
        yield
        return
    before = timeline.doing
    timeline.mark(before, then=part)
    yield
    timeline.mark(part, then=before)


def timeline_for(device: torch.device, heartbeat: Heartbeat) -> Timeline:
    """The timeline of a rank on ``device``."""
    return DeviceTimeline(heartbeat, device) if is_accelerator(device) else HostTimeline(heartbeat)
