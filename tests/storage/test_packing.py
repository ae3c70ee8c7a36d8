"""Bytes of a chunk: every bit is restored, and the two formats are never confused."""

from __future__ import annotations

import math
import random
import struct
from array import array
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.storage.series.packing import (
    SUMMARY_POINTS,
    pack,
    pack_summary,
    unpack,
    unpack_summaries,
)
from lockstep.storage.series.points import Points

WORD = st.integers(0, 2**64 - 1)
"""Any bits: NaNs with payloads, infinities, negative zeros, denormals."""
FULL = 512


def points_of_bits(bits: list[tuple[int, int, int]]) -> Points:
    columns = (b"".join(struct.pack("<Q", row[column]) for row in bits) for column in range(3))
    steps, times, values = columns
    return Points(array("q", steps), array("d", times), array("d", values))


def bits_of(points: Points) -> list[bytes]:
    return [column.tobytes() for column in (points.steps, points.times, points.values)]


@given(st.lists(st.tuples(WORD, WORD, WORD), max_size=40), st.integers(1, 30), st.booleans())
def test_every_bit_comes_back(bits: list[tuple[int, int, int]], times: int, compress: bool) -> None:
    points = points_of_bits(bits * times)
    packed = pack(points, compress=compress)
    assert bits_of(unpack(packed)) == bits_of(points)
    assert len(packed) <= 24 * len(points)
    assert compress or len(packed) == 24 * len(points)


@given(st.lists(st.tuples(WORD, WORD, WORD), min_size=1, max_size=8), st.integers(20, 60))
def test_an_older_program_refuses_compressed_chunks(
    bits: list[tuple[int, int, int]], times: int
) -> None:
    packed = pack(points_of_bits(bits * times), compress=True)
    assert len(packed) < 24 * len(bits) * times
    third = len(packed) // 3
    with pytest.raises(
        ValueError, match="not a multiple of item size"
    ):  # as the previous version reads
        array("q").frombytes(packed[:third])


def test_a_form_of_a_later_version_is_refused_by_name() -> None:
    with pytest.raises(
        ValueError, match="has format 7, but this version only reads raw chunks and format 1"
    ):
        unpack(b"\x07" + bytes(24))


def test_raw_points_are_little_endian() -> None:
    points = Points()
    points.add(1, 2.0, math.inf)
    packed = pack(points, compress=False)
    assert packed.hex() == "0100000000000000" + "0000000000000040" + "000000000000f07f"


def _float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


@pytest.mark.parametrize(
    ("value", "bytes_max"),
    [
        pytest.param(lambda _step, _noise: 64.0, 4.5, id="constant"),
        pytest.param(
            lambda step, _noise: 3e-4 * (1 + math.cos(step / 6000)) / 2, 8, id="learning rate"
        ),
        pytest.param(
            lambda step, noise: _float32(2 * math.exp(-step / 3000) + noise.gauss(0, 0.05)),
            8,
            id="float32",
        ),
        pytest.param(lambda _step, noise: noise.random(), 12, id="random float64"),
    ],
)
def test_a_full_chunk_of_a_usual_series_takes_few_bytes_a_point(
    value: Callable[[int, random.Random], float], bytes_max: float
) -> None:
    noise, points, time = random.Random(1), Points(), 1.79e9
    for step in range(1000, 1000 + FULL):
        time += 0.137 + noise.gauss(0, 0.004)
        points.add(step, time, value(step, noise))
    assert len(pack(points, compress=True)) + len(pack_summary(points)) <= bytes_max * FULL


@given(
    st.lists(
        st.tuples(st.integers(0, 2**62), st.floats(0, 4e9), st.floats()), min_size=32, max_size=32
    )
)
def test_a_summary_agrees_with_its_buckets(rows: list[tuple[int, float, float]]) -> None:
    points = Points()
    for row in [*rows, (1, 1.0, 0.5), *rows[:31]]:
        points.add(*row)
    assert len(points) == 2 * SUMMARY_POINTS
    packed = [pack_summary(points), pack_summary(points.part(32, 64))]
    both = points.buckets(SUMMARY_POINTS)
    both.extend(points.part(32, 64).buckets(SUMMARY_POINTS))
    assert repr(unpack_summaries(packed)) == repr(both)
