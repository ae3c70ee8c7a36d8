"""Every rank has the same whole dataset; other runs are refused before the first step."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.engine.runtime.errors import EngineError
from tests.engine.data.same_data_cases import trained
from tests.engine.spool import records
from tests.harness.ranks import Pool


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("shards", r"dataset\('train'\) on rank 1 differs from that of rank 0: sample 0 differs"),
        ("length", r"dataset\('train'\) has 19 samples on rank 1 and 20 on rank 0"),
        ("eval length", r"dataset\('eval'\) has 19 samples on rank 1 and 20 on rank 0"),
    ],
)
def test_ranks_with_other_data_are_named_on_every_rank(
    pool: Pool, tmp_path: Path, kind: str, message: str
) -> None:
    with pytest.raises(
        EngineError, match=message + r".* Return the whole dataset on every rank"
    ) as caught:
        pool.run(trained, kind, tmp_path, world_size=2)
    assert caught.value.reason == "bad_spec"
    assert records(tmp_path) == {}


@pytest.mark.parametrize("kind", ["whole", "random"])
def test_equal_and_incomparable_data_are_accepted(pool: Pool, tmp_path: Path, kind: str) -> None:
    assert pool.run(trained, kind, tmp_path, world_size=2) == [2, 2]
