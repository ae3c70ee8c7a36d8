"""Points of one series, and their reduction to buckets.

A bucket keeps the smallest and the largest value, the last point, and a mark for values that are no
numbers. It uses ``array`` and lists instead of numpy: the api installs without numpy, and
operations on whole columns run in C, too.

Not here: the form of a chunk (``storage.series.packing``), and the choice of chunks
(``storage.series.series_query``).
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, repeat
from operator import sub
from typing import NamedTuple, Self


@dataclass
class Points:
    """Points in the order in which they came."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    times: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.steps)

    def add(self, step: int, time: float, value: float) -> None:
        self.steps.append(step)
        self.times.append(time)
        self.values.append(value)

    def extend(self, other: Points) -> None:
        self.steps.extend(other.steps)
        self.times.extend(other.times)
        self.values.extend(other.values)

    def part(self, start: int, stop: int) -> Points:
        """Points ``start`` to ``stop``, the latter excluded."""
        return Points(self.steps[start:stop], self.times[start:stop], self.values[start:stop])

    def within(self, from_step: float, to_step: float) -> Points:
        """Points whose step lies in the bounds, both included."""
        kept = Points()
        for step, time, value in zip(self.steps, self.times, self.values, strict=True):
            if from_step <= step <= to_step:
                kept.add(step, time, value)
        return kept

    def bucket(self) -> Bucket:
        """All of them (at least one) in one bucket."""
        # min() and max() run in C, but a NaN among the values would decide their answer by its
        # position.
        nan_count = sum(map(math.isnan, self.values))
        return Bucket(
            size=len(self),
            step=self.steps[-1],
            time=self.times[-1],
            value=math.nan if nan_count else self.values[-1],
            min=_smallest(self.values) if nan_count else min(self.values),
            max=_largest(self.values) if nan_count else max(self.values),
        )

    def buckets(self, size: int) -> Buckets:
        """All of them in buckets of ``size``; the last may be smaller."""
        return Buckets.of(
            self.part(start, start + size).bucket() for start in range(0, len(self), size)
        )


class Bucket(NamedTuple):
    """Summary of consecutive points."""

    size: int
    """Points in it."""
    step: int
    """Of the last point, as is the time."""
    time: float
    value: float
    """Of the last point; NaN if any value in the bucket is: a chart must show it."""
    min: float
    """Of the values that are numbers, infinities included; NaN when there is none."""
    max: float


@dataclass
class Buckets:
    """Buckets of consecutive points, one after the other: a list for each field of ``Bucket``."""

    size: list[int] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    time: list[float] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    min: list[float] = field(default_factory=list)
    max: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, buckets: Iterable[Bucket]) -> Self:
        return cls(*(list(column) for column in zip(*buckets, strict=True)))

    def __len__(self) -> int:
        return len(self.size)

    def extend(self, other: Buckets) -> None:
        for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True):
            mine.extend(theirs)

    def add_points(self, points: Points) -> None:
        """Add points, each as a bucket of its own."""
        values = points.values.tolist()
        self.size += [1] * len(values)
        self.step += points.steps
        self.time += points.times
        self.value += values
        self.min += values
        self.max += values

    def reduced(self, buckets_max: int) -> Buckets:
        """At most so many buckets with near-equal numbers of points.

        Each begins with the first bucket here that has at least its share of the points before it.
        Both sides are taken ``buckets_max`` times, which leaves whole numbers.
        """
        if len(self) <= buckets_max:
            return self
        before = [size * buckets_max for size in accumulate(self.size, initial=0)]
        shares = range(0, before[-1], before[-1] // buckets_max)
        ends = sorted({*map(bisect_left, repeat(before), shares), len(self)})
        marks = [before[end] // buckets_max for end in ends]
        lasts = [end - 1 for end in ends[1:]]
        parts = list(map(slice, ends, ends[1:]))
        with_nan = any(map(math.isnan, self.value))
        least, most = (_smallest, _largest) if with_nan else (min, max)
        return Buckets(
            size=list(map(sub, marks[1:], marks)),
            step=[self.step[last] for last in lasts],
            time=[self.time[last] for last in lasts],
            value=[_last(self.value[part]) for part in parts]
            if with_nan
            else [self.value[last] for last in lasts],
            min=list(map(least, map(self.min.__getitem__, parts))),
            max=list(map(most, map(self.max.__getitem__, parts))),
        )


def _last(values: Sequence[float]) -> float:
    return math.nan if any(map(math.isnan, values)) else values[-1]


def _smallest(values: Sequence[float]) -> float:
    return min((value for value in values if not math.isnan(value)), default=math.nan)


def _largest(values: Sequence[float]) -> float:
    return max((value for value in values if not math.isnan(value)), default=math.nan)
