"""Points of one series, packed into bytes, and their reduction to buckets.

A bucket keeps what a chart must not lose: the smallest and the largest value, the last point, and whether anything in
it is not a number. Plain ``array`` instead of numpy: the api installs without it, and slices of arrays are fast enough
(0.3 s for a million points; whole chunks are reduced from their headers without being opened).

Not here: which chunks are read (``storage.series``).
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from domain.metrics import jsonable


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

    def pack(self) -> bytes:
        """Little-endian int64 steps, float64 times, float64 values, one array after the other."""
        return b"".join(_little_endian(column).tobytes() for column in (self.steps, self.times, self.values))

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """The inverse of :meth:`pack`."""
        points = cls()
        size = len(packed) // 3
        columns: tuple[array[int] | array[float], ...] = (points.steps, points.times, points.values)
        for index, column in enumerate(columns):
            column.frombytes(packed[index * size : (index + 1) * size])
            if sys.byteorder == "big":
                column.byteswap()
        return points

    def bucket(self) -> Bucket:
        """All of them (at least one) in one bucket."""
        values: Sequence[float] = self.values
        # min() and max() run in C, but a NaN among the values would decide their answer by its position.
        nan_count = sum(map(math.isnan, values))
        if nan_count:
            values = [value for value in values if not math.isnan(value)]
        return Bucket(
            count=len(self),
            min=min(values, default=math.nan),
            max=max(values, default=math.nan),
            nan_count=nan_count,
            end_step=self.steps[-1],
            end_time=self.times[-1],
            end_value=self.values[-1],
        )


@dataclass(frozen=True)
class Bucket:
    """What is kept of some consecutive points."""

    count: int
    min: float
    """Of the values that are numbers, infinities included; NaN when there is none."""
    max: float
    nan_count: int
    end_step: int
    end_time: float
    end_value: float

    def followed_by(self, other: Bucket) -> Bucket:
        """This bucket and the next in one."""
        return Bucket(
            self.count + other.count,
            _smaller(self.min, other.min),
            -_smaller(-self.max, -other.max),
            self.nan_count + other.nan_count,
            other.end_step,
            other.end_time,
            other.end_value,
        )

    def value(self) -> float | str:
        """The last value, or ``"NaN"`` if any value in the bucket is NaN: a chart must show it."""
        return jsonable(math.nan if self.nan_count else self.end_value)


def buckets_of(points: Points, size: int) -> list[Bucket]:
    """The points in buckets of ``size``; the last may be smaller."""
    return [points.part(start, start + size).bucket() for start in range(0, len(points), size)]


def merged(buckets: Iterable[Bucket], size: int) -> list[Bucket]:
    """Consecutive buckets joined until each has at least ``size`` points; the last may have fewer."""
    result: list[Bucket] = []
    for bucket in buckets:
        if result and result[-1].count < size:
            result[-1] = result[-1].followed_by(bucket)
        else:
            result.append(bucket)
    return result


def _smaller(a: float, b: float) -> float:
    return b if math.isnan(a) else a if math.isnan(b) else min(a, b)


def _little_endian(column: array[int] | array[float]) -> array[int] | array[float]:
    if sys.byteorder == "little":
        return column
    swapped = column[:]
    swapped.byteswap()
    return swapped
