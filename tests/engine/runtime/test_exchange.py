"""Values that ranks exchange: exact, of any size, and without pickles."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.engine.runtime.document import NotPlainError, encode
from lockstep.engine.runtime.ranks import Ranks
from tests.harness.ranks import Pool

EXACT = [0.1, -0.0, 5e-324, math.inf, -math.inf, 2**60 + 1, True, None, "ü\udc80\x00", [], {"": {}}]


class Runs:
    """Object whose pickle runs code where it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("ran-by-a-pickle"),)


def plain(ranks: Ranks) -> Any:
    mine = {"rank": ranks.rank, "text": "x" * 10**ranks.rank}
    return ranks.gather(mine), ranks.from_first([ranks.rank, *EXACT]), ranks.gather(math.nan)


def tensors(ranks: Ranks) -> Any:
    numbers = torch.arange(3 + ranks.rank, dtype=torch.float64).div(3).to(torch.bfloat16)
    return ranks.to_first({"numbers": numbers, "none": torch.empty(0), "at": (ranks.rank, 0.1)})


@pytest.mark.parametrize("world_size", [2, 3])
def test_every_rank_gets_the_same_exact_values(pool: Pool, world_size: int) -> None:
    gathered = [{"rank": rank, "text": "x" * 10**rank} for rank in range(world_size)]
    for mine, first, nans in pool.run(plain, world_size=world_size):
        assert mine == gathered
        assert repr(first) == repr([0, *EXACT])
        assert [math.isnan(each) for each in nans] == [True] * world_size


def test_the_first_rank_gets_the_tensors_of_all(pool: Pool) -> None:
    first, second = pool.run(tensors, world_size=2)
    assert second == []
    for rank, each in enumerate(first):
        assert (each["at"], each["none"].shape) == ((rank, 0.1), (0,))
        expected = torch.arange(3 + rank, dtype=torch.float64).div(3).to(torch.bfloat16)
        assert torch.equal(each["numbers"], expected)


def scattered(ranks: Ranks) -> list[Any]:
    mine = {"numbers": torch.arange(4.0).view(2, 2).T + ranks.rank, 7: [ranks.rank]}
    return ranks.of_each(mine)


def test_every_rank_knows_the_tensors_of_all_and_holds_its_own(pool: Pool) -> None:
    for rank, found in enumerate(pool.run(scattered, world_size=3)):
        for owner, each in enumerate(found):
            numbers = each["numbers"]
            assert each[7] == [owner]
            assert (numbers.shape, numbers.dtype, numbers.stride) == ((2, 2), torch.float32, (1, 2))
            assert numbers.parts == ((owner, 4),)
            if owner == rank:
                assert torch.equal(numbers.own, torch.arange(4.0).view(2, 2).T + rank)
            else:
                assert numbers.own is None


def test_a_value_of_another_class_is_refused_where_it_is_sent() -> None:
    with pytest.raises(NotPlainError, match="v/0 is of the class Runs"):
        encode({"v": [Runs()]}, lambda *_: {})
    assert not Path("ran-by-a-pickle").exists()
