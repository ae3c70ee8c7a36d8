"""Writing a checkpoint: whatever fails on the way, what was there before can still be loaded."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from engine import checkpoint
from engine.errors import EngineError


def state(value: float) -> dict[str, Any]:
    return {"model": {"w": torch.full((1000,), value)}, "optimizer": {"betas": (0.9, 0.95)}}


def newest(parent: Path) -> float:
    """The value in the newest checkpoint that verifies."""
    for folder in checkpoint.complete(parent):
        try:
            step = checkpoint.verify(folder)
        except checkpoint.DamagedCheckpointError:
            continue
        loaded = checkpoint.load(folder)
        assert loaded["step"] == step
        return float(loaded["model"]["w"][0])
    raise AssertionError("no checkpoint can be loaded")


@pytest.mark.parametrize("name", ["fsync", "open", "rename", "mkdir"])
def test_a_failure_at_any_file_operation_leaves_the_older_checkpoint(tmp_path: Path, name: str) -> None:
    checkpoint.save(tmp_path, 1, state(1.0), keep_last=1)
    owner, real = (os, getattr(os, name)) if name in {"fsync", "open"} else (Path, getattr(Path, name))
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
                checkpoint.save(tmp_path, 2, state(2.0), keep_last=1)
            except EngineError as error:
                refusals.append((error.reason, str(error)))
        assert newest(tmp_path) in {1.0, 2.0}
        if newest(tmp_path) == 1.0:
            assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"], "nothing half-written stays"
    assert len(refusals) >= 1, "no call failed"
    for reason, message in refusals:
        assert reason == "storage"
        assert "step 2" in message
        assert "No space left on device" in message


@pytest.fixture
def small_files() -> Iterator[None]:
    """Files cannot grow beyond 2,000 bytes, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_without_room_is_a_storage_failure(tmp_path: Path, small_files: None) -> None:
    with pytest.raises(EngineError, match="step 3 could not be written") as caught:
        checkpoint.save(tmp_path, 3, state(3.0), keep_last=1)
    assert caught.value.reason == "storage"
    assert list(tmp_path.iterdir()) == []


def test_a_deletion_that_was_interrupted_leaves_nothing_that_looks_complete(tmp_path: Path) -> None:
    saved = checkpoint.save(tmp_path, 1, state(1.0), keep_last=1)
    with mock.patch("shutil.rmtree", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        checkpoint.save(tmp_path, 2, state(2.0), keep_last=1)
    with pytest.raises(checkpoint.DamagedCheckpointError, match="never finished"):
        checkpoint.verify(saved.folder)
    assert newest(tmp_path) == 2.0


def test_loading_runs_no_code(tmp_path: Path) -> None:
    import pickle

    class Evil:
        def __reduce__(self) -> Any:
            return os.system, ("true",)

    folder = checkpoint.save(tmp_path, 1, {"model": Evil()}, keep_last=1).folder
    with pytest.raises(pickle.UnpicklingError):
        checkpoint.load(folder)
