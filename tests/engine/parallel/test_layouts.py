"""Copies, slices and stages together: every layout trains as a plain loop does, and resumes.

The loop imports nothing of the engine. Batches are ragged, some micro-batches are empty, targets
are masked, activations are dropped, and the head is tied to the embedding.
"""

from __future__ import annotations

import math
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.engine.parallel import parallel_cases as cases
from tests.engine.parallel.small_lm import Masked, deep, reference
from tests.engine.parallel.test_pipeline import SAVED, Layout, layout, run
from tests.engine.parallel.test_tensor import RAGGED, SETTINGS, check, observed
from tests.engine.reference import distance
from tests.engine.spool import events
from tests.harness.ranks import Pool

LAYOUTS: list[Layout] = [
    (2, 1, 1),
    (1, 2, 1),
    (1, 1, 2),
    (2, 2, 1),
    (2, 1, 2),
    (1, 2, 2),
    (2, 2, 2),
    (1, 1, 4),
]
SHARDED: list[tuple[Layout, str]] = [
    ((2, 2, 1), "fsdp"),
    ((2, 1, 2), "fsdp"),
    ((2, 2, 2), "fsdp 2"),
    ((4, 1, 2), "fsdp 2"),
]
"""``shard: 2`` keeps two sharded copies of four."""


@pytest.mark.contract(1, 2, 3, 4, 6, 16, 19, 25)
@pytest.mark.parametrize(
    ("of", "strategy"), [*((each, "ddp") for each in LAYOUTS), *SHARDED], ids=str
)
def test_a_layout_trains_as_a_plain_loop(
    eight: Pool, tmp_path: Path, of: Layout, strategy: str
) -> None:
    settings = SETTINGS | RAGGED | layout(*of[1:], strategy)
    found, batches = run(eight, tmp_path, of, settings)
    assert len(batches) == 21
    check(found, reference(settings, 3, batches, partial(deep, Masked)))
    assert events(tmp_path, "warning") == []


RESUMES: list[tuple[Layout, str]] = [
    ((2, 2, 2), "fsdp"),
    ((4, 1, 2), "fsdp 2"),
    ((1, 1, 2), "ddp"),
    ((1, 1, 1), "ddp"),
]


@pytest.mark.contract(26, 27)
@pytest.mark.parametrize("source", RESUMES, ids=str)
def test_a_run_resumes_between_any_two_layouts(
    eight: Pool, tmp_path: Path, source: tuple[Layout, str]
) -> None:
    whole = tmp_path / "whole"
    settings = SETTINGS | layout(*source[0][1:], source[1]) | SAVED
    expected = run(eight, whole, source[0], settings)[0].weights
    for other in RESUMES:
        folder = tmp_path / str(other)
        shutil.copytree(whole / "checkpoints/step-00000002", folder / "resume")
        settings, world = SETTINGS | layout(*other[0][1:], other[1]) | SAVED, math.prod(other[0])
        eight.run(cases.train, settings, folder, None, cases.Deep(), world_size=world)
        found, same = observed(folder).weights, other == source
        assert distance(found, expected) <= 1e-12, other
        assert [event["exact"] for event in events(folder, "resumed")] == [same], other
        if same:
            assert all(torch.equal(found[key], expected[key]) for key in expected)
            saved = [
                each / "checkpoints/step-00000004/state.safetensors" for each in (folder, whole)
            ]
            assert saved[0].read_bytes() == saved[1].read_bytes()


def test_a_stage_gathers_its_parameters_once_per_step(eight: Pool, tmp_path: Path) -> None:
    settings = SETTINGS | RAGGED | layout(1, 2, "fsdp") | {"epochs": None, "steps": 3}
    run(eight, tmp_path, (2, 1, 2), settings, mutate=cases.gathered_once_per_step)
