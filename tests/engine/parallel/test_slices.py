"""Slices, parts of whole tensors and masks of slices, against whole ones."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

from lockstep.domain.spec.parallel import Parallel
from lockstep.domain.training.layout import RankLayout
from lockstep.engine.checkpoints.tensors import pieces
from lockstep.engine.parallel.slices import Cut, whole_of
from lockstep.engine.runtime.mesh import Mesh, mesh_of
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.scattered import Scattered
from lockstep.engine.task.dropout import Dropout, DropoutCut, Masks, name_layers
from tests.harness.ranks import Pool

CUTS = [Cut(0, 2), Cut(0, 2, 3), Cut(1, 2), Cut(1, 2, 2), Cut(1, 2, 3)]
WHOLE = torch.arange(12.0 * 12).view(12, 12)


def sent(ranks: Ranks, sharded: bool) -> list[tuple[Any, list[list[float]]]]:
    """Return for each cut the parts of the whole tensor, and the pieces of this rank."""
    mesh: Mesh = mesh_of(ranks, Parallel(tensor=2))
    place, group, found = mesh.place, mesh.tensor, []
    assert group is not None
    for cut in CUTS:
        value: Any = cut.take(WHOLE, place.tensor)
        if sharded:  # As fsdp does: three rows of five, say, on the first copy.
            rows = -(-len(value) // mesh.layout.copies)
            mine = value[place.copy * rows : (place.copy + 1) * rows]
            counts = [min(rows, len(value) - copy * rows) for copy in range(mesh.layout.copies)]
            parts = tuple((copy, n * value.shape[1]) for copy, n in enumerate(counts) if n > 0)
            value = Scattered(value.dtype, tuple(value.shape), parts, mine if len(mine) else None)
        scattered = whole_of(value, cut, mesh.layout, place, group)
        assert isinstance(scattered, Scattered)
        assert scattered.shape == (12, 12)
        mine_sent = [piece.flatten().tolist() for piece in pieces(scattered, ranks.rank)]
        found.append((scattered.parts, mine_sent))
    return found


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("world_size", [2, 4])
def test_the_pieces_of_all_ranks_are_the_whole_tensor(
    pool: Pool, world_size: int, sharded: bool
) -> None:
    found = pool.run(sent, sharded, world_size=world_size)
    for index in range(len(CUTS)):
        parts = found[0][index][0]
        assert all(each[index][0] == parts for each in found), "equal on all ranks"
        left = [list(each[index][1]) for each in found]
        elements: list[float] = []
        for rank, count in parts:
            piece = left[rank].pop(0)
            assert len(piece) == count
            elements += piece
        assert elements == WHOLE.flatten().tolist()
        assert not any(left)


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
