"""Groups of ranks with equal slices, and with slices of one copy."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from lockstep.domain.spec.parallel import Parallel
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.mesh import mesh_of
from lockstep.engine.runtime.ranks import Ranks
from tests.harness.ranks import Pool


def sums(ranks: Ranks, tensor: int) -> tuple[int, int, int, bool]:
    """Return the index among the copies, and 10 ** rank over each group."""
    mesh = mesh_of(ranks, Parallel(tensor=tensor))
    data, slices = (torch.tensor([10**ranks.rank]) for _ in range(2))
    mesh.data.sum_on_device(data)
    dist.all_reduce(slices, group=mesh.tensor)
    return mesh.data.rank, int(data), int(slices), mesh.counts


def test_each_rank_shares_the_batch_with_its_slices_elsewhere(pool: Pool) -> None:
    assert pool.run(sums, 2, world_size=4) == [
        (0, 101, 11, True),
        (0, 1010, 11, False),
        (1, 101, 1100, True),
        (1, 1010, 1100, False),
    ]
    assert pool.run(sums, 2, world_size=2) == [(0, 1, 11, True), (0, 10, 11, False)]


def whole(ranks: Ranks) -> bool:
    mesh = mesh_of(ranks, Parallel(tensor=1))
    return mesh.data is ranks and mesh.tensor is None and mesh.counts


def test_without_a_cut_there_are_no_other_groups(pool: Pool) -> None:
    assert pool.run(whole, world_size=3) == [True] * 3


def test_an_incomplete_copy_is_refused_at_the_start(pool: Pool) -> None:
    with pytest.raises(EngineError, match="3 ranks are no multiple") as seen:
        pool.run(sums, 2, world_size=3)
    assert seen.value.reason == "bad_spec"
