"""Random series with all difficult values, and the expected chart, found by counting.

Each point's time is its number, so the time of a bucket identifies its points.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from lockstep.domain.training.metrics import StepValues
from lockstep.storage.db.database import Database
from lockstep.storage.series import series, streams

AWKWARD = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e300, -1e-300)
NAMES = ("train/loss", "eval/loss")


class Raw(NamedTuple):
    attempt: int
    step: int
    time: float
    value: float


Stored = dict[str, list[Raw]]
"""All points of a job by series, in the order of storage."""


class Drawn(Protocol):
    """A curve, from any source."""

    attempt: int
    count: int
    non_finite: int
    step: list[int]
    time: list[float]
    value: list[float]
    min: list[float]
    max: list[float]


def plant(
    database: Database, job_id: str, numbers: random.Random, sizes: Iterable[Iterable[int]]
) -> Stored:
    """Store points of a job without a row: for each attempt, batches of this many records."""
    stored: Stored = {name: [] for name in NAMES}
    for _ in planting(database, job_id, numbers, sizes, stored):
        pass
    return stored


def planting(
    database: Database,
    job_id: str,
    numbers: random.Random,
    sizes: Iterable[Iterable[int]],
    stored: Stored,
) -> Iterator[None]:
    """Like :func:`plant`, with a pause after each batch; ``stored`` has the points so far."""
    steps: list[int] = [0]
    time = 0
    for attempt, batches in enumerate(sizes, start=1):
        writer = streams.Writer(f"{job_id[:30]}-{attempt}", job_id, attempt, "token")
        with database.series() as session:
            assert streams.open_stream(session, writer)
        # Begins again at any step, as from a checkpoint, or as a script that counts from the start.
        step = numbers.choice(steps)
        for offset, size in enumerate(batches):
            records = []
            for _ in range(size):
                step = max(0, step + numbers.choice((0, 1, 1, 1, 1, 1, 1, 2, 5, -3)))
                time += 1
                names = NAMES if numbers.random() < 0.1 else NAMES[:1]
                odd = numbers.random() < 0.02
                value = numbers.choice(AWKWARD) if odd else numbers.gauss(0, 1)
                records.append(StepValues(step, float(time), dict.fromkeys(names, value)))
                steps.append(step)
                for name in names:
                    stored[name].append(Raw(attempt, step, float(time), value))
            with database.series() as session:
                assert series.append(
                    session,
                    assignment_id=writer.assignment_id,
                    token="token",
                    offset_before=offset,
                    offset_after=offset + 1,
                    records=records,
                )
            yield


def wanted(
    stored: Stored, name: str, from_step: int | None, to_step: int | None, attempts: str
) -> list[list[Raw]]:
    """Return the points of each curve that a read of one series must draw."""
    low = -math.inf if from_step is None else from_step
    high = math.inf if to_step is None else to_step
    first: dict[int, int] = {}
    for point in (point for points in stored.values() for point in points):
        first[point.attempt] = min(point.step, first.get(point.attempt, point.step))
    again = {
        attempt: min((first[later] for later in first if later > attempt), default=math.inf)
        for attempt in first
    }
    curves: dict[int, list[Raw]] = {}
    for point in stored[name]:
        hidden = attempts != "all" and point.step >= again[point.attempt]
        if low <= point.step <= high and not hidden:
            curves.setdefault(0 if attempts == "current" else point.attempt, []).append(point)
    return list(curves.values())


def check(curve: Drawn, points: list[Raw], max_points: int) -> None:
    """Check that each bucket agrees with its points, and that each point is in one bucket."""
    assert curve.count == len(points)
    assert curve.non_finite == sum(not math.isfinite(point.value) for point in points)
    assert 1 <= len(curve.step) <= max_points
    start = 0
    for step, time, value, least, most in zip(
        curve.step, curve.time, curve.value, curve.min, curve.max, strict=True
    ):
        end = start + 1
        while points[end - 1].time != time:
            end += 1
        inside = points[start:end]
        numbers = [point.value for point in inside if not math.isnan(point.value)]
        assert step == inside[-1].step
        assert repr(value) == repr(inside[-1].value if len(numbers) == len(inside) else math.nan)
        assert (
            (least, most) == (min(numbers), max(numbers))
            if numbers
            else math.isnan(least) and math.isnan(most)
        )
        start = end
    assert start == len(points)
