"""Binary form of a chunk: its points, raw or compressed, and a summary of them.

*Raw* is little-endian int64 steps, float64 times, float64 values, one array after the other: 24
bytes a point.

*Compressed* is a byte that names this form, a zlib stream, and zeros. The stream holds the raw
form's 64-bit numbers, each less the one before it (modulo 2**64, so that every bit pattern comes
back), in eight planes: first the lowest byte of every number, last the highest. Steps count on and
times go on evenly, which leaves a few bytes a point; of values at least the bytes that hardly
change go. Measured on chunks of 512: 2.7 bytes a point for a constant, 6 for losses of float32 or a
learning rate, 10 for random float64, where times jitter by milliseconds.

The two are told apart by their length: a raw form's is a multiple of 24, a compressed one's never.
The zeros see to more than that. A program of the version before, which takes every chunk for raw,
cuts it into three and reads each third as 8-byte numbers; the length is such that it cannot. So it
refuses to draw what it cannot read, and never draws something else.

The *summary* of a full chunk is its points in buckets of 32, bucket by bucket: a chart of many
points is drawn from these.

Not here: which chunks are compressed, and where the bytes are kept (``storage.series.series``).
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Iterable
from itertools import accumulate, chain
from operator import sub
from typing import Final, TypeVar

from lockstep.storage.series.points import Buckets, Points

Column = TypeVar("Column", bound="array[int] | array[float]")

SUMMARY_POINTS: Final = 32
"""In each bucket of a summary. Smaller ones would draw shorter series without opening chunks, and
cost 40 bytes each."""
_POINT_BYTES: Final = 24
_BUCKET_WORDS: Final = 5
_BUCKET_BYTES: Final = 8 * _BUCKET_WORDS
_COMPRESSED: Final = b"\x01"
_LEVEL: Final = 1
"""Level 6 takes twice as long and saves 2 %: the rest is mostly noise."""
_WORD: Final = 2**64 - 1


def pack(points: Points, *, compress: bool) -> bytes:
    """Points as bytes; compressed only where that makes them fewer."""
    raw = b"".join(_to_bytes(column) for column in _columns(points))
    if not compress:
        return raw
    words = _filled(array("Q"), raw)
    differences = _to_bytes(array("Q", map(_WORD.__and__, map(sub, words, chain((0,), words)))))
    planes = b"".join(differences[byte::8] for byte in range(8))
    packed = _COMPRESSED + zlib.compress(planes, _LEVEL)
    # A third of it, rounded down, is then no multiple of 8 (see the module's docstring).
    packed += bytes(max(0, 3 - len(packed) % _POINT_BYTES))
    return packed if len(packed) < len(raw) else raw


def unpack(packed: bytes) -> Points:
    """The inverse of :func:`pack`.

    Raises
    ------
    ValueError
        If the form is of a later version.
    """
    raw = packed if len(packed) % _POINT_BYTES == 0 else _decompressed(packed)
    size = len(raw) // 3
    points = Points()
    for number, column in enumerate(_columns(points)):
        _filled(column, raw[number * size : (number + 1) * size])
    return points


def _columns(points: Points) -> tuple[array[int] | array[float], ...]:
    return points.steps, points.times, points.values


def _decompressed(packed: bytes) -> bytes:
    if not packed.startswith(_COMPRESSED):
        raise ValueError(
            f"a chunk of points has format {packed[0]}, but this version only reads raw chunks and "
            f"format {_COMPRESSED[0]}: read it with the version that wrote it"
        )
    planes = zlib.decompressobj().decompress(packed[1:])  # which leaves the zeros behind the stream
    count = len(planes) // 8
    differences = bytearray(len(planes))
    for byte in range(8):
        differences[byte::8] = planes[byte * count : (byte + 1) * count]
    return _to_bytes(array("Q", map(_WORD.__and__, accumulate(_filled(array("Q"), differences)))))


def pack_summary(points: Points) -> bytes:
    """Points of a full chunk in buckets: step, time, value, smallest and largest in turn."""
    buckets = points.buckets(SUMMARY_POINTS)
    steps, numbers = array("q", bytes(_BUCKET_BYTES * len(buckets))), array("d")
    steps[::_BUCKET_WORDS] = array("q", buckets.step)
    numbers.frombytes(steps.tobytes())
    for place, column in enumerate(
        (buckets.time, buckets.value, buckets.min, buckets.max), start=1
    ):
        numbers[place::_BUCKET_WORDS] = array("d", column)
    return _to_bytes(numbers)


def unpack_summaries(packed: Iterable[bytes]) -> Buckets:
    """The inverse of :func:`pack_summary`, for some chunks that follow each other, at once."""
    together = b"".join(packed)
    numbers = _filled(array("d"), together)
    time, value, smallest, largest = (
        numbers[place::_BUCKET_WORDS].tolist() for place in range(1, _BUCKET_WORDS)
    )
    step = _filled(array("q"), together)[::_BUCKET_WORDS].tolist()
    return Buckets([SUMMARY_POINTS] * len(step), step, time, value, smallest, largest)


def _to_bytes(column: array[int] | array[float]) -> bytes:
    """Little-endian, whatever this machine is."""
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def _filled(column: Column, packed: bytes | bytearray) -> Column:
    """The inverse of :func:`_to_bytes`, at the end of ``column``, which is empty."""
    column.frombytes(packed)
    if sys.byteorder == "big":
        column.byteswap()
    return column
