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
from tests.engine.parallel.test_pipeline import Layout, layout, run
from tests.engine.parallel.test_tensor import RAGGED, SETTINGS, check, observed
from tests.engine.reference import distance
from tests.engine.spool import events
from tests.harness.ranks import Pool

LAYOUTS: list[tuple[Layout, str]] = [
    ((2, 1, 1), "ddp"),
    ((1, 2, 1), "ddp"),
    ((1, 1, 2), "ddp"),
    ((2, 1, 2), "ddp"),
    ((1, 2, 2), "ddp"),
    ((2, 2, 2), "ddp"),
    ((1, 1, 4), "ddp"),
    ((2, 1, 2), "fsdp"),
    ((2, 2, 2), "fsdp 2"),
    ((4, 1, 2), "fsdp 2"),
]
"""``shard: 2`` keeps two sharded copies of four. ``test_tensor`` has more without stages."""
LONG = (1, 1, 2)
"""It trains twenty-one steps, over ends of epochs; the others four."""


@pytest.mark.contract(1, 2, 3, 4, 6, 16, 19, 25)
@pytest.mark.parametrize(("of", "strategy"), LAYOUTS, ids=str)
def test_a_layout_trains_as_a_plain_loop(
    eight: Pool, tmp_path: Path, of: Layout, strategy: str
) -> None:
    # Micro-batches of one sample are empty on the copies that have fewer of them.
    short = {"batch": {"size": 9, "micro_size": 1 if of[0] > 1 else 2}, "epochs": 1}
    settings = SETTINGS | RAGGED | layout(*of[1:], strategy)
    settings |= {"epochs": 6} if of == LONG else short
    blocks = of[2] + 1
    task, mutate = cases.Deep(blocks=blocks), None
    if strategy == "fsdp":
        mutate = cases.gathered_once_per_step
    found, batches = run(eight, tmp_path, of, settings, mutate=mutate, task=task)
    assert len(batches) == (21 if of == LONG else 4)
    check(found, reference(settings, 3, batches, partial(deep, Masked, blocks=blocks)))
    assert events(tmp_path, "warning") == []


CHAIN: list[tuple[Layout, str]] = [
    ((1, 1, 1), "ddp"),
    ((1, 1, 2), "ddp"),
    ((2, 2, 2), "fsdp"),
    ((4, 1, 2), "fsdp 2"),
    ((1, 1, 1), "ddp"),
]
SAVED = {"checkpoint": {"every_steps": 1, "keep_last": 9}}


@pytest.mark.contract(26, 27)
def test_a_run_resumes_between_any_two_layouts(eight: Pool, tmp_path: Path) -> None:
    """Each layout goes on from a checkpoint of the one before; two from one of their own, too.

    A state has the same bytes on any layout, so a pair of layouts needs no run of its own.
    """
    expected = run(eight, tmp_path / "0", CHAIN[0][0], SETTINGS | SAVED)[0].weights
    for index, (of, name) in enumerate(CHAIN[1:], 1):
        before, here, again = (tmp_path / str(each) for each in (index - 1, index, f"own-{index}"))
        for source, folder, step in ((before, here, index), (here, again, index + 1)):
            if folder == again and index > 2:
                break  # ``test_hybrid`` has sharded copies.
            shutil.copytree(source / f"checkpoints/step-{step:08d}", folder / "resume")
            settings = SETTINGS | layout(*of[1:], name) | SAVED
            eight.run(cases.train, settings, folder, None, cases.Deep(), world_size=math.prod(of))
            found = observed(folder).weights
            assert distance(found, expected) <= 1e-12, (of, step)
            same = folder == again
            assert [event["exact"] for event in events(folder, "resumed")] == [same], (of, step)
            if same:
                whole = observed(here).weights
                assert all(torch.equal(found[key], whole[key]) for key in expected), of
                last = "checkpoints/step-00000005/state.safetensors"
                assert (folder / last).read_bytes() == (here / last).read_bytes(), of
