"""Slices, parts of whole tensors and masks of slices, against whole ones."""

from __future__ import annotations

import io
from collections import Counter
from itertools import product
from typing import Any
from unittest import mock

import pytest
import safetensors.torch
import torch
from torch import Tensor

from lockstep.domain.spec.parallel import Parallel
from lockstep.domain.training.layout import RankLayout
from lockstep.engine.checkpoints.tensors import NamedTensor, pieces, write
from lockstep.engine.parallel import slices
from lockstep.engine.parallel.slices import Cut, whole_of
from lockstep.engine.runtime.mesh import Mesh, mesh_of
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.scattered import Scattered
from lockstep.engine.task.dropout import Dropout, DropoutCut, Masks, name_layers
from tests.harness.ranks import Pool

CUTS = [Cut(0, 2), Cut(0, 2, 3), Cut(1, 2), Cut(1, 2, 2), Cut(1, 2, 3)]
WHOLE = torch.arange(12.0 * 12).view(12, 12)


def sent(ranks: Ranks, sharded: bool) -> list[tuple[Scattered, list[Tensor]]]:
    """Return for each cut the parts of the whole tensor, and the pieces of this rank."""
    mesh: Mesh = mesh_of(ranks, Parallel(tensor=2))
    place, found = mesh.place, []
    for cut in CUTS:
        value: Any = cut.take(WHOLE, place.tensor)
        if sharded:  # As fsdp does: three rows of five, say, on the first copy.
            rows = -(-len(value) // mesh.layout.copies)
            mine = value[place.copy * rows : (place.copy + 1) * rows]
            counts = [min(rows, len(value) - copy * rows) for copy in range(mesh.layout.copies)]
            parts = tuple((copy, n * value.shape[1]) for copy, n in enumerate(counts) if n > 0)
            value = Scattered(value.dtype, tuple(value.shape), parts, mine if len(mine) else None)
        with mock.patch.object(slices, "BLOCK_BYTES", 2 * 12 * 4):  # Two whole rows.
            scattered = whole_of(value, cut, mesh.layout, place)
        assert isinstance(scattered, Scattered)
        assert scattered.shape == (12, 12)
        found.append((scattered, [piece.clone() for piece in pieces(scattered, ranks.rank)]))
    return found


class Arriving:
    """Pieces of all ranks but 0, in the order of the parts."""

    def __init__(self, parts: tuple[tuple[int, int], ...], of_ranks: list[list[Tensor]]):
        left = [iter(each) for each in of_ranks]
        self._pieces = iter([next(left[rank]) for rank, _ in parts if rank])

    def next(self) -> Tensor:
        return next(self._pieces).contiguous().view(torch.uint8).flatten()


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("world_size", [2, 4])
def test_the_pieces_of_all_ranks_are_the_whole_tensor(
    pool: Pool, world_size: int, sharded: bool
) -> None:
    found = pool.run(sent, sharded, world_size=world_size)
    for index in range(len(CUTS)):
        first, of_ranks = found[0][index][0], [each[index][1] for each in found]
        for each in found:
            assert (each[index][0].parts, each[index][0].columns) == (first.parts, first.columns)
        held = Counter(rank for rank, _ in first.parts)
        assert [held[rank] for rank in range(world_size)] == [len(each) for each in of_ranks]
        file = io.BytesIO()
        incoming = Arriving(first.parts, of_ranks)
        write(file, [NamedTensor("whole", first)], incoming=incoming)
        assert torch.equal(safetensors.torch.load(file.getvalue())["whole"], WHOLE)


@pytest.mark.parametrize("cut", CUTS)
def test_slices_of_a_tensor_are_equal_and_hold_every_element_once(cut: Cut) -> None:
    slices = [cut.take(WHOLE, index) for index in range(cut.size)]
    assert {tuple(cut.whole_shape(tuple(each.shape))) for each in slices} == {(12, 12)}
    assert sorted(torch.cat([each.flatten() for each in slices]).tolist()) == list(range(144))


@pytest.mark.parametrize(("dim", "size"), list(product((1, 2, 3), (2, 4))))
def test_the_mask_of_a_slice_is_the_slice_of_the_mask(dim: int, size: int) -> None:
    layer = torch.nn.Sequential(Dropout(0.3))
    name_layers(layer)
    masks = Masks(layer, seed=5, device=torch.device("cpu"))
    ones = torch.ones(3, 4, 8, 12)

    def dropped(x: torch.Tensor) -> torch.Tensor:
        masks.begin_micro_batch(7, 2, len(x))
        found: torch.Tensor = layer(x)
        return found

    whole = dropped(ones)
    width = ones.shape[dim] // size
    for index in range(size):
        layer[0].cut = DropoutCut(dim, size, index)
        part = ones.narrow(dim, index * width, width)
        assert torch.equal(dropped(part), whole.narrow(dim, index * width, width))


def test_a_rank_of_each_copy_counts() -> None:
    assert [RankLayout.of(8, 4).counts(rank) for rank in range(8)] == [True, *[False] * 3] * 2
