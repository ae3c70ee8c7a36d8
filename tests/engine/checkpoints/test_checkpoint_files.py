"""Writing of a checkpoint: after any failure, the previous checkpoints can be loaded."""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from lockstep.engine.checkpoints import checkpoint
from lockstep.engine.checkpoints.checkpoint import CheckpointMetric
from lockstep.engine.runtime.errors import EngineError
from tests.engine.checkpoints.killed import saver
from tests.harness import disks
from tests.harness.drills import Drill

WORDS = 50_000
"""So that a checkpoint has 200 kB."""


def state(value: float) -> dict[str, Any]:
    return {"model": {"w": torch.full((WORDS,), value)}, "optimizer": {"betas": (0.9, 0.95)}}


def newest(parent: Path) -> float:
    """Return the value in the newest valid checkpoint."""
    for folder in checkpoint.complete(parent):
        try:
            step = checkpoint.verify(folder)
        except checkpoint.DamagedCheckpointError:
            continue
        loaded = checkpoint.load(folder)
        assert loaded["step"] == step
        return float(loaded["model"]["w"][0])
    raise AssertionError("no checkpoint can be loaded")


def names(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir())


@pytest.mark.contract(28)
@pytest.mark.parametrize("name", ["fsync", "open", "rename", "mkdir"])
def test_a_failure_at_any_file_operation_leaves_the_older_checkpoint(
    tmp_path: Path, name: str
) -> None:
    saver(tmp_path).write(1, state(1.0))
    owner, real = (
        (os, getattr(os, name)) if name in {"fsync", "open"} else (Path, getattr(Path, name))
    )
    failing_call, calls, refusals = 0, 1, []
    while failing_call < calls:
        failing_call, calls = failing_call + 1, 0

        def fail(*arguments: Any, at: int = failing_call, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at:
                raise OSError(28, "No space left on device")
            return real(*arguments, **options)

        with mock.patch.object(owner, name, fail):
            try:
                saver(tmp_path).write(2, state(2.0))
            except EngineError as error:
                refusals.append((error.reason, str(error)))
        assert newest(tmp_path) in {1.0, 2.0}
        if newest(tmp_path) == 1.0:
            assert names(tmp_path) == ["step-00000001"], "nothing half-written stays"
    assert len(refusals) >= 1, "no call failed"
    for reason, message in refusals:
        assert reason == "storage"
        assert "step 2" in message
        assert "No space left on device" in message


@pytest.fixture
def small_files() -> Iterator[None]:
    """Limit files to 20,000 bytes, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.contract(28)
def test_a_file_that_cannot_grow_is_a_storage_failure(tmp_path: Path, small_files: None) -> None:
    with pytest.raises(EngineError, match="step 3 could not be written") as caught:
        saver(tmp_path).write(3, state(3.0))
    assert caught.value.reason == "storage"
    assert names(tmp_path) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """File system of 512 kB, with room for two checkpoints and not for three."""
    with disks.small_disk(tmp_path / "disk", "size=512k") as folder:
        yield folder


@pytest.mark.contract(28)
@pytest.mark.row
def test_a_full_disk_costs_the_new_checkpoint_and_not_the_older_ones(
    small_disk: Path, drill: Drill
) -> None:
    drill.begin("F18", "no room for the next checkpoint")
    drill.injected += 1
    given = saver(small_disk, keep_last=3)
    given.write(1, state(1.0))
    given.begin(2, state(2.0))
    given.finish()
    given.begin(3, state(3.0))
    with pytest.raises(
        EngineError, match=r"step 3 could not be written .*No space left on device"
    ) as caught:
        given.finish()
    assert caught.value.reason == "storage"
    assert names(small_disk) == ["step-00000001", "step-00000002"]
    assert newest(small_disk) == 2.0


@pytest.mark.contract(28)
@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ("torn", "state.safetensors has 100000 bytes"),
        ("flipped", "state.safetensors was changed"),
        ("emptied", "state.safetensors has 0 bytes"),
        ("lost", "state.safetensors is missing"),
        ("unfinished", "manifest.json is missing"),
        ("garbled", "manifest.json cannot be read"),
        ("unnamed", "manifest.json does not name state.json"),
        ("foreign", "format 99"),
    ],
)
def test_each_damage_is_found_and_named(tmp_path: Path, damage: str, why: str) -> None:
    folder = saver(tmp_path).write(1, state(1.0)).folder
    file, manifest = folder / "state.safetensors", folder / "manifest.json"
    content, document = bytearray(file.read_bytes()), json.loads(manifest.read_text())
    if damage == "flipped":
        content[len(content) // 3] ^= 1
        file.write_bytes(content)
    elif damage in {"torn", "emptied"}:
        os.truncate(file, 100_000 if damage == "torn" else 0)
    elif damage in {"lost", "unfinished"}:
        (file if damage == "lost" else manifest).unlink()
    elif damage == "garbled":
        os.truncate(manifest, 30)
    else:
        changed = (
            {"files": {"a": document["files"]["state.safetensors"]}}
            if damage == "unnamed"
            else {"format": 99}
        )
        manifest.write_text(json.dumps(document | changed))
    with pytest.raises(checkpoint.DamagedCheckpointError, match=why):
        checkpoint.verify(folder)


@pytest.mark.contract(28)
def test_every_bit_of_a_checkpoint_counts(tmp_path: Path) -> None:
    folder = saver(tmp_path).write(1, {"model": {"w": torch.ones(4)}}).folder
    file = folder / "state.safetensors"
    content = file.read_bytes()
    for place in range(0, len(content), 7):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        file.write_bytes(changed)
        with pytest.raises(checkpoint.DamagedCheckpointError):
            checkpoint.verify(folder)
    file.write_bytes(content)
    assert checkpoint.verify(folder) == 1


def test_an_unfinished_deletion_leaves_no_checkpoint_name(tmp_path: Path) -> None:
    saver(tmp_path).write(1, state(1.0))
    with (
        mock.patch("os.unlink", side_effect=KeyboardInterrupt),
        contextlib.suppress(KeyboardInterrupt),
    ):
        saver(tmp_path).write(2, state(2.0))
    assert names(tmp_path) == [".step-00000001.trash", "step-00000002"]
    checkpoint.tidy(tmp_path)
    assert names(tmp_path) == ["step-00000002"]


def test_older_checkpoints_that_cannot_be_deleted_are_a_warning(
    tmp_path: Path,
) -> None:
    warnings: list[str] = []
    given = saver(tmp_path)
    given._warn = warnings.append
    given.write(1, state(1.0))
    with mock.patch.object(
        checkpoint, "_remove", side_effect=PermissionError(13, "Permission denied")
    ):
        given.write(2, state(2.0))
    assert newest(tmp_path) == 2.0
    assert warnings == ["older checkpoints could not be deleted: [Errno 13] Permission denied"]


def save_all(parent: Path, values: list[float | None], keep_last: int) -> list[int]:
    """Save steps 1, 2, … with these values of a metric; return the steps that remain."""
    given = saver(parent, keep_last)
    for step, value in enumerate(values, start=1):
        given.write(step, {"model": {}}, measured=CheckpointMetric("eval/loss", value))
    return [
        int(path.name.removeprefix("step-")) for path in reversed(list(checkpoint.complete(parent)))
    ]


@pytest.mark.parametrize(
    ("values", "left"),
    [
        ([1.0, 3.0, 2.0, 4.0, 5.0], [1, 4, 5]),
        ([2.0, 2.0, 2.0, 2.0], [1, 3, 4]),
        ([3.0, math.nan, 2.0, -math.inf, 9.0, 9.0], [3, 5, 6]),
        ([math.nan, None, math.nan, None], [3, 4]),
        ([5.0, None, 4.0, None, None], [3, 4, 5]),
    ],
)
def test_the_best_is_kept_and_of_equal_ones_the_earliest(
    tmp_path: Path, values: list[float | None], left: list[int]
) -> None:
    assert save_all(tmp_path, values, keep_last=2) == left


def test_the_value_is_in_the_manifest_even_if_it_is_nan(tmp_path: Path) -> None:
    save_all(tmp_path, [1.5, math.nan, None], keep_last=3)
    metrics = [
        json.loads((path / "manifest.json").read_text())["metric"]
        for path in checkpoint.complete(tmp_path)
    ]
    assert metrics == [{"name": "eval/loss", "value": value} for value in (None, "NaN", 1.5)]


def test_the_best_by_another_metric_does_not_count(tmp_path: Path) -> None:
    saver(tmp_path).write(1, {"model": {}}, measured=CheckpointMetric("train/loss", 0.0))
    given = saver(tmp_path)
    given.write(2, {"model": {}}, measured=CheckpointMetric("eval/loss", 5.0))
    assert names(tmp_path) == ["step-00000002"]


def test_a_folder_newer_than_the_saved_step_is_deleted_as_damaged(tmp_path: Path) -> None:
    given = saver(tmp_path, keep_last=2)
    for step in (1, 2, 3, 4):
        given.write(step, state(step))
    for damaged in (3, 4):
        os.truncate(tmp_path / f"step-0000000{damaged}/state.safetensors", 10)
    saver(tmp_path, keep_last=1).write(2, state(2.5))
    assert names(tmp_path) == ["step-00000002"]
    assert newest(tmp_path) == 2.5


def test_steps_of_nine_digits_are_ordered_by_number(tmp_path: Path) -> None:
    given = saver(tmp_path, keep_last=2)
    for step in (9_999_999, 99_999_999, 100_000_000):
        given.write(step, state(float(step)))
    (tmp_path / "step-by-step").mkdir()  # A folder of the user.
    assert [folder.name for folder in checkpoint.complete(tmp_path)] == [
        "step-100000000",
        "step-99999999",
    ]


def test_loading_runs_no_code(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.system, ("true",)

    with pytest.raises(EngineError, match="model/w is of the class Evil"):
        checkpoint.save(tmp_path, 1, {"model": {"w": Evil()}})
    assert names(tmp_path) == []
    torch.save({"model": Evil()}, tmp_path / "state.pt")  # As a version before wrote it.
    with pytest.raises(checkpoint.DamagedCheckpointError, match="cannot be read: UnpicklingError"):
        checkpoint.load(tmp_path)
