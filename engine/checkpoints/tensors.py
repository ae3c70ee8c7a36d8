"""``.safetensors`` files: written one block at a time, and read as views of the mapped file.

A file begins with the length of its header, and the header: JSON with the number format, shape and
place of each tensor. The data follow without gaps. Wider formats come first, so that each tensor
lies at a multiple of its element's size. The header is known before the first value is, so no
tensor has to be in memory as a whole.

Formats that the library does not know, such as complex128, are written as bytes.

Not here: the names of the tensors (``engine.checkpoints.contents``), the way of a part from rank to
rank (``engine.checkpoints.streams``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import torch
from safetensors import safe_open
from torch import Tensor

from lockstep.engine.runtime.scattered import BLOCK_BYTES, Ranges, Scattered

_ALIGNED: Final = 8
NAMES: Final = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.complex64: "C64",
}
"""Names of the number formats in a header."""
_BYTES: Final = "U8"


@dataclass(frozen=True)
class NamedTensor:
    """One tensor of a file."""

    name: str
    value: Tensor | Scattered

    @property
    def bytes(self) -> int:
        return math.prod(self.value.shape) * self.value.dtype.itemsize


class Incoming(Protocol):
    """Blocks of other ranks, in the order of the file."""

    def next(self) -> Tensor:
        """Return the next block, valid until the one after it."""


class Writable(Protocol):
    def write(self, block: bytes | memoryview, /) -> object: ...


def position(value: Tensor | Scattered) -> int:
    """Return the key by which the tensors of a file are sorted."""
    return -value.dtype.itemsize


def in_order(pieces: Sequence[NamedTensor]) -> list[NamedTensor]:
    """Return the pieces in the order of their data."""
    return sorted(pieces, key=lambda piece: position(piece.value))


def write(
    file: Writable,
    pieces: Sequence[NamedTensor],
    *,
    metadata: Mapping[str, str] | None = None,
    incoming: Incoming | None = None,
) -> None:
    """Write a file. Beside the tensors at hand it takes the memory of one block.

    Parameters
    ----------
    file : binary file
    pieces : sequence of NamedTensor
        In the order of :func:`in_order`.
    metadata : mapping of str to str, optional
    incoming : Incoming, optional
        Parts of other ranks.
    """
    file.write(_header(pieces, metadata))
    for piece in pieces:
        for block in _blocks_of(piece.value, incoming):
            file.write(block.numpy().data)


def blocks(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the bytes of a dense tensor in the order of its elements, on the host."""
    whole = tensor.detach().resolve_conj().resolve_neg().contiguous()
    flat = whole.reshape(-1).view(torch.uint8)
    for first in range(0, flat.numel(), BLOCK_BYTES):
        yield flat[first : first + BLOCK_BYTES].cpu()


def pieces(value: Scattered, rank: int) -> Iterator[Tensor]:
    """Yield the parts of this rank, one after the other."""
    counts = [count for holder, count in value.parts if holder == rank]
    if not counts:
        return
    assert value.own is not None, "its holder has it"
    if len(counts) == 1:
        yield value.own
        return
    yield from torch.split(value.own.contiguous().view(-1), counts)


def block_sizes(size_bytes: int) -> Iterator[int]:
    """Yield the sizes of :func:`blocks` for a tensor of this size."""
    for first in range(0, size_bytes, BLOCK_BYTES):
        yield min(BLOCK_BYTES, size_bytes - first)


def views(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file by name, as views of the mapped file.

    A value is read from the disk when it is used. Copy what outlives the reading: a view keeps the
    file open, and fails if the disk does.
    """
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping


def as_format(raw: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor that was written as bytes in its own number format."""
    return raw if raw.dtype == dtype else raw.view(dtype).reshape(raw.shape[:-1])


def _blocks_of(value: Tensor | Scattered, incoming: Incoming | None) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield from blocks(value)
        return
    parts = _parts_of(value, incoming)
    if value.columns is not None:
        parts = (blocks(rows) for rows in _rows(value, parts, value.columns))
    for part in parts:
        yield from part


def _parts_of(value: Scattered, incoming: Incoming | None) -> Iterator[Iterator[Tensor]]:
    """Yield the blocks of each part. Use them up before the next part."""
    own = pieces(value, 0)
    for rank, elements in value.parts:
        if rank == 0:
            yield blocks(next(own))
        else:
            assert incoming is not None
            yield (incoming.next() for _ in block_sizes(elements * value.dtype.itemsize))


def _rows(
    value: Scattered, parts: Iterator[Iterator[Tensor]], columns: Sequence[Ranges]
) -> Iterator[Tensor]:
    """Yield some whole rows at a time, out of the parts that have their columns.

    They are valid until the next ones.
    """
    counts = [elements for _, elements in value.parts]
    some = torch.empty(max(counts, default=0), dtype=value.dtype)
    all_of_them = torch.empty(len(some) * len(columns), dtype=value.dtype)
    for first in range(0, len(counts), len(columns)):
        together = counts[first : first + len(columns)]
        whole = all_of_them[: sum(together)].view(-1, value.shape[1])
        for elements, ranges in zip(together, columns, strict=True):
            part = some[:elements]
            filled, at = part.view(torch.uint8), 0
            for block in next(parts):
                filled[at : at + len(block)] = block
                at += len(block)
            widths = [stop - start for start, stop in ranges]
            found = torch.split(part.view(len(whole), -1), widths, dim=1)
            for (start, stop), each in zip(ranges, found, strict=True):
                whole[:, start:stop] = each
        yield whole


def _header(pieces: Sequence[NamedTensor], metadata: Mapping[str, str] | None) -> bytes:
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for piece in pieces:
        begin, end = end, end + piece.bytes
        name, shape = NAMES.get(piece.value.dtype), list(piece.value.shape)
        if name is None:
            name, shape = _BYTES, [*shape, piece.value.dtype.itemsize]
        header[piece.name] = {"dtype": name, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    return len(text).to_bytes(8, "little") + text
