"""Points and buckets: no extreme, NaN or end is lost in any reduction to fewer buckets."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from lockstep.storage.series.points import Bucket, Buckets, Points

STEPS = st.integers(min_value=0, max_value=2**62 - 1)
POINT = st.tuples(STEPS, st.floats(allow_nan=False, allow_infinity=False), st.floats())
Rows = list[tuple[int, float, float]]


def points_of(rows: Rows) -> Points:
    points = Points()
    for row in rows:
        points.add(*row)
    return points


@given(st.lists(POINT, min_size=1, max_size=60), st.integers(1, 70))
def test_buckets_keep_every_extreme_every_nan_and_each_end(rows: Rows, size: int) -> None:
    buckets = points_of(rows).buckets(size)
    assert len(buckets) == math.ceil(len(rows) / size)
    for index, bucket in enumerate(_each(buckets)):
        _check(bucket, rows[index * size : (index + 1) * size])


@given(
    st.lists(st.lists(POINT, min_size=1, max_size=9), min_size=1, max_size=12), st.integers(1, 14)
)
def test_fewer_buckets_agree_with_their_points(parts: list[Rows], buckets_max: int) -> None:
    buckets = Buckets.of(points_of(part).bucket() for part in parts)
    few = buckets.reduced(buckets_max)
    rows = [row for part in parts for row in part]
    assert len(few) <= max(1, buckets_max)
    assert sum(few.size) == len(rows)
    for bucket in _each(few):
        _check(bucket, rows[: bucket.size])
        rows = rows[bucket.size :]


@given(st.lists(POINT, min_size=1, max_size=60), st.integers(1, 70))
def test_single_points_go_into_equal_buckets_as_many_as_may_be(
    rows: Rows, buckets_max: int
) -> None:
    buckets = Buckets()
    buckets.add_points(points_of(rows))
    few = buckets.reduced(buckets_max)
    assert len(few) == min(len(rows), buckets_max)
    assert max(few.size) - min(few.size) <= 1


def test_buckets_and_points_follow_each_other() -> None:
    rows: Rows = [(1, 1.0, 3.0), (2, 2.0, math.nan), (3, 3.0, -math.inf)]
    buckets = points_of(rows[:2]).buckets(2)
    last = Buckets()
    last.add_points(points_of(rows[2:]))
    buckets.extend(last)
    first, second = _each(buckets)
    _check(first, rows[:2])
    _check(second, rows[2:])


def _each(buckets: Buckets) -> list[Bucket]:
    return [Bucket(*fields) for fields in zip(*vars(buckets).values(), strict=True)]


def _check(bucket: Bucket, rows: Rows) -> None:
    numbers = sorted(value for _step, _time, value in rows if value == value)
    assert bucket.size == len(rows)
    assert (bucket.step, bucket.time) == rows[-1][:2]
    assert repr(bucket.value) == repr(rows[-1][2] if len(numbers) == len(rows) else math.nan)
    if numbers:
        assert (bucket.min, bucket.max) == (numbers[0], numbers[-1])
    else:
        assert math.isnan(bucket.min)
        assert math.isnan(bucket.max)
