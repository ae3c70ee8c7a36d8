"""Sharded copies of slices: two tensor ranks, two ranks per copy, two copies, on eight ranks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from tests.engine.parallel import parallel_cases as cases
from tests.engine.parallel.test_tensor import (
    SETTINGS,
    check,
    compared,
    layout,
    observed,
    run,
)
from tests.engine.reference import distance
from tests.engine.spool import events
from tests.harness.ranks import Pool

HYBRID = "fsdp 2"


def test_sharded_copies_of_a_cut_model_train_as_a_plain_loop(eight: Pool, tmp_path: Path) -> None:
    # 31 samples: batches of nine, with empty micro-batches on three of four copies, and one of four
    more = {"batch": {"size": 9, "micro_size": 1}, "steps": None, "epochs": 1} | layout(2, HYBRID)
    more["strategy"] = {**more["strategy"], "reduce": "each_micro_batch"}
    check(*compared(run(eight, tmp_path, 4, 2, **more), more))
    assert events(tmp_path, "warning") == []


@pytest.mark.contract(23)
def test_slices_of_a_stage_are_compared_with_those_of_other_copies(eight: Pool) -> None:
    found = eight.run(cases.diverged, "blocks.0.up.weight", world_size=8)
    words = "blocks.0.up.weight differs, between rank 1 and rank 3"
    assert [each.endswith(words) for each in found] == [True] * 4 + [False] * 4, found


def test_a_run_resumes_from_and_on_sharded_copies(eight: Pool, tmp_path: Path) -> None:
    saved = {"steps": 4, "checkpoint": {"every_steps": 2}}
    settings, whole = SETTINGS | saved, tmp_path / "whole"
    found = run(eight, whole, 4, 2, **saved, **layout(2, HYBRID))
    check(*compared(found, saved))
    expected = found.weights
    for copies, tensor, name in ((4, 2, HYBRID), (4, 1, HYBRID), (1, 2, "ddp")):
        folder = tmp_path / f"{copies}{tensor}{name}"
        shutil.copytree(whole / "checkpoints/step-00000002", folder / "resume")
        eight.run(cases.train, settings | layout(tensor, name), folder, world_size=copies * tensor)
        found, same = observed(folder).weights, (copies, tensor) == (4, 2)
        assert distance(found, expected) <= 1e-12, folder.name
        assert [event["exact"] for event in events(folder, "resumed")] == [same]
        if same:
            assert all(torch.equal(found[key], expected[key]) for key in expected)
            written = [
                each / "checkpoints/step-00000004/state.safetensors" for each in (folder, whole)
            ]
            assert written[0].read_bytes() == written[1].read_bytes()
