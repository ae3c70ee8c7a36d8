"""Tensors whose parts lie on several ranks, as a checkpoint gathers them.

Not here: their values on the way (``engine.checkpoints.streams``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

BLOCK_BYTES: Final = 4 << 20
"""Bytes that are copied from a device, sent, or written at once."""
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Scattered:
    """One whole tensor. Equal on all ranks, except for ``own``."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    parts: tuple[tuple[int, int], ...]
    """Rank and number of elements of each part, in the order of the whole tensor's elements."""
    own: Tensor | None
    """Part of this rank, if it has one."""
    stride: tuple[int, ...] | None = None
    """Of a tensor that is not contiguous where it lies."""
    columns: tuple[Ranges, ...] | None = None
    """Bounds of the columns in each of so many successive parts, which together are some whole
    rows; None if each part is whole rows or elements."""


def stride_of(value: Tensor | Scattered) -> tuple[int, ...] | None:
    """Return the strides of a tensor that fills its memory in another order; None of others."""
    if isinstance(value, Scattered):
        return value.stride
    if value.layout != torch.strided or value.is_contiguous():
        return None
    order = sorted(range(value.dim()), key=value.stride, reverse=True)
    return tuple(value.stride()) if value.permute(order).is_contiguous() else None


def identity(value: Tensor | Scattered) -> object:
    """Return a key that is equal for a dense tensor that is given twice, such as a tied weight."""
    if isinstance(value, Scattered) or not value.numel():
        return id(value)
    views = value.is_conj(), value.is_neg()
    return value.device, value.data_ptr(), value.shape, value.stride(), value.dtype, views
