"""Sharded copies of slices: two tensor ranks, two ranks per copy, two copies, on eight ranks."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.parallel import parallel_cases as cases
from tests.engine.parallel.small_lm import Expected
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
SHORT = {"batch": {"size": 9, "micro_size": 1}, "steps": None, "epochs": 1}
"""31 samples: three batches of nine, with empty micro-batches on three of four copies, and one of
four."""
SAVED = SHORT | {"checkpoint": {"every_steps": 2}}


def often(settings: dict[str, Any]) -> dict[str, Any]:
    return settings | {"strategy": settings["strategy"] | {"reduce": "each_micro_batch"}}


@pytest.fixture(scope="module")
def whole(eight: Pool, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Expected]:
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(eight, folder, 4, 2, **SAVED, **often(layout(2, HYBRID)))


def test_sharded_copies_of_a_cut_model_train_as_a_plain_loop(whole: tuple[Path, Expected]) -> None:
    folder, found = whole
    check(*compared(found, SHORT))
    assert events(folder, "warning") == []


@pytest.mark.contract(23)
def test_slices_of_a_stage_are_compared_with_those_of_other_copies(eight: Pool) -> None:
    found = eight.run(cases.diverged, "blocks.0.up.weight", world_size=8)
    words = "blocks.0.up.weight differs, between rank 1 and rank 3"
    assert [each.endswith(words) for each in found] == [True] * 4 + [False] * 4, found


def test_a_run_resumes_from_and_on_sharded_copies(
    eight: Pool, tmp_path: Path, whole: tuple[Path, Expected]
) -> None:
    expected, end = whole[1].weights, "checkpoints/step-00000004/state.safetensors"
    for copies, tensor, name in ((4, 2, HYBRID), (4, 1, HYBRID), (1, 2, "ddp")):
        folder = tmp_path / f"{copies}{tensor}{name}"
        shutil.copytree(whole[0] / "checkpoints/step-00000002", folder / "resume")
        same, more = (copies, tensor) == (4, 2), layout(tensor, name)
        settings = SETTINGS | SAVED | (often(more) if same else more)
        eight.run(cases.train, settings, folder, world_size=copies * tensor)
        found = observed(folder).weights
        assert distance(found, expected) <= 1e-12, folder.name
        assert [event["exact"] for event in events(folder, "resumed")] == [same]
        if same:
            assert all(torch.equal(found[key], expected[key]) for key in expected)
            assert (folder / end).read_bytes() == (whole[0] / end).read_bytes()
