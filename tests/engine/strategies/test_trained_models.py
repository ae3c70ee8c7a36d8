"""Models that a strategy trains, or refuses with the same cause, on any number of ranks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from tests.engine.reference import distance
from tests.engine.spool import records
from tests.engine.strategies import trained_model_cases
from tests.engine.strategies.trained_model_cases import (
    Adversary,
    Empty,
    FirstBatch,
    FrozenBase,
    Gaps,
    KeepsInput,
    LateScale,
    Line,
    NewWeight,
    OwnHead,
    Penalized,
    Scalar,
    Synchronised,
    Whole,
)
from tests.harness.ranks import Pool


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize(
    ("task", "strategy", "cause"),
    [
        (Gaps, "zero1", "needs parameters without gaps in memory, and weight of shape (1, 2)"),
        (Scalar, "fsdp", "cannot shard a scalar, and scale has no dimension: give it the shape"),
        (Synchronised, "ddp", "1 is a SyncBatchNorm, which runs on GPUs only: use BatchNorm"),
        (Penalized, "fsdp", "cannot run a loss() that differentiates through the model"),
        (Whole, "fsdp", "cannot run a loss() that differentiates through the model"),
        (FirstBatch, "ddp", "loss() changes or makes parameters that are trained (shift), which"),
        (NewWeight, "ddp", "loss() changes or makes parameters that are trained (weight), which"),
        (OwnHead, "ddp", "loss() gives a gradient to task.head.bias, task.head.weight, which"),
        (OwnHead, "fsdp", "loss() gives a gradient to task.head.bias, task.head.weight, which"),
        (LateScale, "ddp", "loss() gives a gradient to task.kept['scale'], which is not a part of"),
        (Adversary, "ddp", ""),
        (KeepsInput, "ddp", ""),
        (FrozenBase, "zero1", ""),
        (Gaps, "ddp", ""),
        (Scalar, "zero1", ""),
        (Empty, "ddp", ""),
        (Empty, "zero1", ""),
        (Empty, "fsdp", "cannot shard a parameter without numbers, and empty has the shape (0, 3)"),
        (Penalized, "zero1", ""),
    ],
)
def test_a_model_is_trained_or_refused_on_any_number_of_ranks(
    pool: Pool, tmp_path: Path, task: type[Line], strategy: str, cause: str, world_size: int
) -> None:
    found = pool.run(trained_model_cases.ended, task, tmp_path, strategy, world_size=world_size)
    for each in found:
        assert each.startswith("bad_spec: ") == bool(cause), each
        assert cause in each
    assert (records(tmp_path) == {}) == bool(cause)


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_checkpoint_in_another_memory_format_resumes_under_fsdp(
    pool: Pool, tmp_path: Path, world_size: int
) -> None:
    whole = pool.run(
        trained_model_cases.pictures, torch.channels_last, tmp_path / "whole", "ddp", world_size=1
    )[0]
    shutil.copytree(tmp_path / "whole/checkpoints/step-00000004", tmp_path / "again/resume")
    again = pool.run(
        trained_model_cases.pictures,
        torch.contiguous_format,
        tmp_path / "again",
        "fsdp",
        world_size=world_size,
    )[0]
    assert distance(again, whole) <= 1e-12
