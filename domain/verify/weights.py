"""Distance of two exported models, ‖a − b‖ / ‖b‖ over all parameters, without a tensor library.

A ``model.safetensors`` is eight bytes with the length of a JSON header, the header, and the bytes
of the tensors. Both files are read block by block.

Not here: the comparison bit by bit (``client.files.weights``).
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

INCOMPARABLE: Final = 1.0
"""Distance of models that have no number in common: other tensors, NaN, other whole numbers."""
_BLOCK_BYTES: Final = 1 << 17
_METADATA: Final = "__metadata__"


class Distance(NamedTuple):
    """Distance of one model from another."""

    relative: float
    double: bool
    """True if every number of the models is in float64."""


def _unpacked(code: str, size: int) -> Callable[[bytes], tuple[float, ...]]:
    return lambda block: struct.unpack(f"<{len(block) // size}{code}", block)


def _of_bfloat16(block: bytes) -> tuple[float, ...]:
    wide = bytearray(2 * len(block))  # A bfloat16 is the upper half of a float32.
    wide[2::4], wide[3::4] = block[::2], block[1::2]
    return struct.unpack(f"<{len(block) // 2}f", wide)


_NUMBERS: Final[dict[str, Callable[[bytes], tuple[float, ...]]]] = {
    "F64": _unpacked("d", 8),
    "F32": _unpacked("f", 4),
    "F16": _unpacked("e", 2),
    "BF16": _of_bfloat16,
}
"""Formats whose numbers enter the norms; tensors of another format must be equal."""


def distance(one: Path, other: Path) -> Distance:
    """The distance of ``one`` from ``other``, two files in the safetensors format.

    Raises
    ------
    ValueError
        If a file has another format.
    """
    with one.open("rb") as ours, other.open("rb") as theirs:
        header, start = _header(ours)
        header_there, start_there = _header(theirs)
        formats = {str(about["dtype"]) for about in header.values()} & _NUMBERS.keys()
        double = formats == {"F64"}
        if _shapes(header) != _shapes(header_there):
            return Distance(INCOMPARABLE, double)
        apart = size = 0.0
        for name, about in header.items():
            ours.seek(start + about["data_offsets"][0])
            theirs.seek(start_there + header_there[name]["data_offsets"][0])
            numbers = _NUMBERS.get(about["dtype"])
            for block, block_there in _blocks(ours, theirs, about):
                if numbers is None:
                    apart = apart if block == block_there else math.inf
                    continue
                values = numbers(block_there)
                size = math.hypot(size, *values)
                if block != block_there:
                    apart = math.hypot(apart, math.dist(numbers(block), values))
    relative = apart / size if apart and size else float(apart > 0)
    return Distance(relative if math.isfinite(relative) else INCOMPARABLE, double)


def _header(file: BinaryIO) -> tuple[dict[str, Any], int]:
    """The tensors by name, and the offset of their bytes."""
    try:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    except (struct.error, ValueError, OverflowError, MemoryError):
        raise ValueError(f"{file.name} is not a safetensors file") from None
    header.pop(_METADATA, None)
    return header, 8 + length


def _shapes(header: dict[str, Any]) -> dict[str, tuple[str, list[int]]]:
    return {name: (about["dtype"], about["shape"]) for name, about in header.items()}


def _blocks(
    ours: BinaryIO, theirs: BinaryIO, about: dict[str, Any]
) -> Iterator[tuple[bytes, bytes]]:
    first, last = about["data_offsets"]
    for done in range(first, last, _BLOCK_BYTES):
        count = min(_BLOCK_BYTES, last - done)
        yield ours.read(count), theirs.read(count)
