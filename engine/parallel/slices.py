"""Slices of a tensor that several ranks hold together, and the way back to parts of the whole.

A cut divides one dimension into equal slices, one per rank. With n packs, each of n equal blocks of
the dimension is divided, so that a rank holds its slice of the query, of the key and of the value.

Not here: the parameters that are cut (``engine.parallel.cut``).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lockstep.domain.training.layout import RankLayout, RankPlace
from lockstep.engine.runtime.scattered import BLOCK_BYTES, Scattered

Parts = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Cut:
    """Cut of one parameter, and of the moments of its shape."""

    dim: int
    size: int
    """Number of slices."""
    packs: int = 1

    def ranges(self, whole: int, index: int) -> list[tuple[int, int]]:
        """Return the bounds of a slice in a dimension of this length, in order."""
        block, width = whole // self.packs, whole // self.packs // self.size
        first = [pack * block + index * width for pack in range(self.packs)]
        return [(start, start + width) for start in first]

    def take(self, whole: Tensor, index: int) -> Tensor:
        """Return a copy of a slice."""
        pieces = [
            whole.narrow(self.dim, start, stop - start)
            for start, stop in self.ranges(whole.shape[self.dim], index)
        ]
        return torch.cat(pieces, self.dim).contiguous()

    def whole_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a tensor with slices of this shape."""
        return tuple(
            length * (self.size if dim == self.dim else 1) for dim, length in enumerate(shape)
        )


def whole_of(
    value: Tensor | Scattered,
    cut: Cut | None,
    layout: RankLayout,
    place: RankPlace,
) -> Tensor | Scattered:
    """Return a tensor of this rank's strategy as a part of the whole one.

    A file has the elements of a tensor in their order. Rows lie together in it, and columns do not:
    parts of columns are so small that rank 0 can put some whole rows together.

    Parameters
    ----------
    value : Tensor or Scattered
        A tensor that is whole but for the cut, or parts of it by the index of a copy.
    cut : Cut, optional
        None, if every rank of the tensor group holds the same.
    layout : RankLayout
    place : RankPlace
        Of this rank.
    """
    if isinstance(value, Tensor):
        if cut is None:
            return value
        held: Parts = ((0, value.numel()),)
        own = value.contiguous() if place.copy == 0 else None
    else:
        held, own = value.parts, value.own
    if cut is None:
        parts = tuple((layout.rank(RankPlace(place.stage, copy, 0)), count) for copy, count in held)
        return Scattered(value.dtype, value.shape, parts, own if place.tensor == 0 else None)
    shape = cut.whole_shape(tuple(value.shape))
    if cut.dim == 0:
        return Scattered(value.dtype, shape, _in_order(held, cut, layout, place.stage), own)
    columns = tuple(tuple(cut.ranges(shape[1], index)) for index in range(cut.size))
    rows_at_once = max(1, BLOCK_BYTES // (shape[1] * value.dtype.itemsize))
    parts = tuple(
        (layout.rank(RankPlace(place.stage, copy, index)), rows * value.shape[1])
        for copy, count in held
        for rows in _groups(count // value.shape[1], rows_at_once)
        for index in range(cut.size)
    )
    return Scattered(value.dtype, shape, parts, own, columns=columns)


def _groups(rows: int, at_once: int) -> list[int]:
    """Return the sizes of groups of rows."""
    return [min(at_once, rows - first) for first in range(0, rows, at_once)]


def _in_order(held: Parts, cut: Cut, layout: RankLayout, stage: int) -> Parts:
    """Return the parts of a tensor whose rows are cut, in the order of the whole one.

    A rank's part of a block of rows is the intersection of the block with what it holds.
    """
    block = sum(count for _, count in held) // cut.packs
    parts: list[tuple[int, int]] = []
    for pack in range(cut.packs):
        for index in range(cut.size):
            at = 0
            for copy, count in held:
                common = min(at + count, (pack + 1) * block) - max(at, pack * block)
                if common > 0:
                    parts.append((layout.rank(RankPlace(stage, copy, index)), common))
                at += count
    return tuple(parts)
