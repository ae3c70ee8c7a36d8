"""Packed points and buckets: what was put in comes out, and no extreme is lost."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from storage.points import Bucket, Points, buckets_of, merged

STEPS = st.integers(min_value=0, max_value=2**62 - 1)
POINT = st.tuples(STEPS, st.floats(allow_nan=False, allow_infinity=False), st.floats())


def _points(rows: list[tuple[int, float, float]]) -> Points:
    points = Points()
    for row in rows:
        points.add(*row)
    return points


@given(st.lists(POINT))
def test_unpacking_gives_back_what_was_packed(rows: list[tuple[int, float, float]]) -> None:
    packed = _points(rows).pack()
    points = Points.unpack(packed)
    assert len(packed) == 24 * len(rows)
    assert repr(list(zip(points.steps, points.times, points.values, strict=True))) == repr(rows)  # NaN != NaN


def test_packed_points_are_little_endian() -> None:
    packed = _points([(1, 2.0, math.inf)]).pack()
    assert packed.hex() == "0100000000000000" + "0000000000000040" + "000000000000f07f"


@given(st.lists(POINT, min_size=1, max_size=60), st.integers(1, 70))
def test_buckets_keep_every_extreme_every_nan_and_each_end(rows: list[tuple[int, float, float]], size: int) -> None:
    for index, bucket in enumerate(buckets_of(_points(rows), size)):
        inside = rows[index * size : (index + 1) * size]
        _check(bucket, inside)


@given(st.lists(st.lists(POINT, min_size=1, max_size=9), min_size=1, max_size=12), st.integers(1, 40))
def test_joined_buckets_say_what_one_bucket_of_all_their_points_says(
    parts: list[list[tuple[int, float, float]]], size: int
) -> None:
    joined = merged([_points(part).bucket() for part in parts], size)
    rows = [row for part in parts for row in part]
    assert sum(bucket.count for bucket in joined) == len(rows)
    assert all(bucket.count >= size for bucket in joined[:-1])
    for bucket in joined:
        _check(bucket, rows[: bucket.count])
        rows = rows[bucket.count :]


def _check(bucket: Bucket, rows: list[tuple[int, float, float]]) -> None:
    numbers = sorted(value for _step, _time, value in rows if value == value)
    assert bucket.count == len(rows)
    assert bucket.nan_count == len(rows) - len(numbers)
    assert (bucket.end_step, bucket.end_time) == rows[-1][:2]
    assert repr(bucket.end_value) == repr(rows[-1][2])
    if numbers:
        assert (bucket.min, bucket.max) == (numbers[0], numbers[-1])
    else:
        assert math.isnan(bucket.min)
        assert math.isnan(bucket.max)
    if bucket.nan_count:
        assert bucket.value() == "NaN"
