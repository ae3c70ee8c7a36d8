"""Nodes of a job that run different versions: refused by name, before any step."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch

from lockstep.domain.life.outcomes import Reason
from lockstep.engine.runtime import versions
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from tests.engine.runtime.test_alone import ENVIRONMENT, ROOT, job
from tests.harness import forks
from tests.harness.processes import free_port
from tests.harness.ranks import Pool

MAIN = (
    "import sys; from lockstep.engine.runtime import versions; versions.VERSION = sys.argv.pop(1); "
    "from lockstep.engine.__main__ import main; main()"
)


def of_torch(ranks: Ranks, found: list[str]) -> None:
    with mock.patch.object(torch, "__version__", found[ranks.rank]):
        versions.require_one_version(ranks)


def test_torch_of_another_version_is_refused_on_all_ranks(pool: Pool) -> None:
    pool.run(of_torch, ["2.13.0+cu126", "2.13.0+cu128", "2.13.0"], world_size=3)
    with pytest.raises(EngineError, match=r"rank 2 runs torch 2\.12\.1, and rank 0 runs"):
        pool.run(of_torch, ["2.13.0", "2.13.0", "2.12.1"], world_size=3)


def test_two_nodes_of_different_versions_do_not_train(tmp_path: Path) -> None:
    port = str(free_port())
    environment = ENVIRONMENT | {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    words = [job(tmp_path / "job"), "--out", tmp_path / "out"]
    nodes = [
        forks.Forked(
            [sys.executable, "-c", MAIN, version, *words],
            forks.ENGINE,
            env={**environment, "RANK": str(rank)},
            cwd=ROOT,
            **forks.PIPES,
        )
        for rank, version in enumerate(("0.1.0", "0.0.9"))
    ]
    first, second = (forks.ended(node, 120) for node in nodes)
    assert (first.returncode, second.returncode) == (1, 1)
    assert (
        "rank 1 runs Lockstep 0.0.9, and rank 0 runs Lockstep 0.1.0" in first.stderr + second.stderr
    )
    (errors,) = (tmp_path / "out/errors").glob("rank0.json")
    assert json.loads(errors.read_text())["reason"] == Reason.VERSION
