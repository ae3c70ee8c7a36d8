"""Bitwise comparison of two exported models, without a tensor library.

A ``model.safetensors`` is eight bytes with the length of a JSON header, the header, and the bytes
of the tensors. The header names the job, so files of equal weights differ; the comparison covers
each tensor's type, shape and bytes.

Not here: the download (``client.files.checkpoints``), and the writing
(``engine.checkpoints.export``).
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final

from lockstep.client.files.checkpoints import DigestMismatchError

HEADER_BYTES_MAX: Final = 100_000_000
"""As the format itself has it."""
_METADATA: Final = "__metadata__"
_BLOCK_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Tensor:
    """One tensor of an exported model."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str
    """Of its bytes."""

    @property
    def numbers(self) -> int:
        return prod(self.shape)


def tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a ``model.safetensors``, by name.

    Raises
    ------
    DamagedError
        If it is no such file.
    """
    with path.open("rb") as file:
        try:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > HEADER_BYTES_MAX:
                raise ValueError(f"a header of {length:,} bytes")
            header = json.loads(file.read(length))
            start = 8 + length
            found = {}
            for name, about in header.items():
                if name != _METADATA:
                    first, last = about["data_offsets"]
                    file.seek(start + first)
                    digest, left = hashlib.sha256(), last - first
                    while left and (block := file.read(min(left, _BLOCK_BYTES))):
                        digest.update(block)
                        left -= len(block)
                    if left:
                        raise ValueError(f"{name} ends {left:,} bytes early")
                    found[name] = Tensor(about["dtype"], tuple(about["shape"]), digest.hexdigest())
        except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DigestMismatchError(f"{path} is not a safetensors file: {error}") from None
    return found


def differences(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    """Names of the tensors that are not the same in both, or are missing in one."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
