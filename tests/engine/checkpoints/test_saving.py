"""Kills at any file operation of a save, and saves during training."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from lockstep.engine.checkpoints import checkpoint, saving
from lockstep.engine.checkpoints.saving import HostCopy
from lockstep.engine.runtime.errors import EngineError
from tests.engine import cases
from tests.engine.checkpoints.killed import saver, state
from tests.engine.checkpoints.saves import (
    held_until,
    no_copy_is_made,
    same,
    written_after_the_next_update,
    written_only_after_a_failure,
)
from tests.engine.spool import events
from tests.engine.toy import Toy
from tests.harness import forks
from tests.harness.ranks import Pool

OPTIONS: dict[str, Any] = {
    "batch": {"size": 6, "micro_size": 2},
    "optimizer": {"name": "adamw", "lr": 1e-2},
    "steps": 4,
    "checkpoint": {"every_steps": 2, "keep_last": 10},
}

BLOCKING = {"checkpoint": {"every_steps": 2, "keep_last": 10, "background": False}}

# --- kills


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """Folder in memory if possible: hundreds of syncs of a real disk take half a minute."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        dir=memory if os.access(memory, os.W_OK) else tmp_path
    ) as folder:
        yield Path(folder)


def kills(how: str, folder: Path) -> list[dict[str, Any]]:
    """Return one row per kill; raise the output of the process if a checkpoint was incomplete."""
    words = [sys.executable, "-m", "tests.engine.checkpoints.killed", how, folder]
    done = forks.run(words, forks.ENGINE, timeout=120, cwd=forks.ROOT)
    if done.returncode:
        raise AssertionError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(rows: list[dict[str, Any]]) -> None:
    assert all(row["killed"] for row in rows[:-1])
    assert not rows[-1]["killed"], "the last one was not killed: every operation was tested"
    assert {"open", "write", "fsync", "rename", "unlink"} <= {row["died_before"] for row in rows}
    for row in rows:
        assert 1.0 in row["after"]["values"].values() or 2.0 in row["after"]["values"].values(), (
            row["died_before"]
        )
        assert row["after"]["hidden"] == [], "the next run removes partial folders"
        assert row["next"] == {"values": {"step-00000003": 3.0}, "hidden": []}, (
            "and saves without an error"
        )


@pytest.mark.contract(28)
@pytest.mark.parametrize("how", ["background", "final", "replaced", "streamed"])
def test_a_save_killed_at_any_file_operation_leaves_a_checkpoint_that_loads(
    how: str, quick_folder: Path
) -> None:
    rows = kills(how, quick_folder)
    check(rows)
    published = [list(row["before"]["values"].values()) for row in rows]
    if how != "replaced":  # The old one has no name of its own for a moment, until it is put back.
        assert all(published)
        # The old one is deleted only after the new one exists: both are there in between.
        assert published[0] == [1.0]
        assert [2.0, 1.0] in published
        assert published[-1] == [2.0]


@pytest.mark.contract(28)
@pytest.mark.parametrize("how", ["in_place", "pruned_first"])
def test_saving_in_place_or_deleting_first_fails_this_check(how: str, quick_folder: Path) -> None:
    with pytest.raises(AssertionError):
        check(kills(how, quick_folder))


# --- the copy


def tied_state(device: str = "cpu") -> dict[str, Any]:
    model = torch.nn.Linear(3, 3, bias=False, device=device)
    weights = torch.nn.ModuleDict({"one": model, "other": model}).state_dict()
    return {
        "model": weights,
        "optimizer": {"state": {0: {"step": torch.tensor(1.0), "m": torch.ones(3, 3)}}, "lr": 0.1},
    }


@pytest.mark.contract(29)
def test_a_copy_is_equal_and_separate_and_keeps_ties() -> None:
    given = tied_state()
    taken = HostCopy(torch.device("cpu")).take(given)
    assert taken["optimizer"]["lr"] == 0.1
    assert torch.equal(taken["model"]["one.weight"], given["model"]["one.weight"])
    assert taken["model"]["one.weight"].data_ptr() == taken["model"]["other.weight"].data_ptr()
    assert type(taken["model"]) is type(given["model"])
    assert taken["model"]._metadata == given["model"]._metadata
    given["optimizer"]["state"][0]["m"].zero_()
    given["optimizer"]["state"][0]["step"] += 1
    assert taken["optimizer"]["state"][0]["m"].sum() == 9
    assert taken["optimizer"]["state"][0]["step"] == 1


@pytest.mark.contract(29)
def test_a_copy_has_the_values_of_sparse_and_conjugated_tensors() -> None:
    numbers = torch.tensor([1 + 2j, 3 - 1j])
    given = {"model": {"n": numbers, "c": numbers.conj(), "s": torch.eye(2).to_sparse()}}
    taken = HostCopy(torch.device("cpu")).take(given)["model"]
    given["model"]["s"]._values().zero_()
    numbers.zero_()
    assert taken["n"].tolist() == [1 + 2j, 3 - 1j]
    assert taken["c"].tolist() == [1 - 2j, 3 + 1j]
    assert torch.equal(taken["s"].to_dense(), torch.eye(2))


@pytest.mark.contract(29)
def test_copies_reuse_the_same_memory() -> None:
    copies = HostCopy(torch.device("cpu"))

    def places(taken: dict[str, Any]) -> list[int]:
        moments = taken["optimizer"]["state"][0]
        return [
            taken["model"]["one.weight"].data_ptr(),
            moments["step"].data_ptr(),
            moments["m"].data_ptr(),
        ]

    first = places(copies.take(tied_state()))
    assert places(copies.take(tied_state())) == first


# --- the thread


def strategy_of(name: str) -> dict[str, Any]:
    return {"strategy": {"name": name} | ({"sync_every_steps": 3} if name == "diloco" else {})}


def saved(folder: Path, step: int) -> dict[str, Any]:
    return checkpoint.load(folder / f"checkpoints/step-{step:08d}")


@pytest.mark.contract(29)
@pytest.mark.parametrize("strategy", ["ddp", "zero1", "fsdp", "diloco"])
def test_a_checkpoint_holds_its_step_while_training_continues(
    pool: Pool, tmp_path: Path, strategy: str
) -> None:
    """Also if it is written after the next update. A write of the live state fails this check."""

    def train(name: str, mutate: Any = None, **more: Any) -> Path:
        options = OPTIONS | strategy_of(strategy) | more
        pool.run(cases.train, Toy(), options, tmp_path / name, mutate, world_size=2)
        return tmp_path / name

    blocking = train("blocking", **BLOCKING)
    background = train("background", written_after_the_next_update)
    for step in (2, 4):
        assert same(saved(background, step), saved(blocking, step)), step
    assert [event["step"] for event in events(background, "checkpoint")] == [2, 4]
    if strategy in {"ddp", "fsdp"}:
        assert not same(saved(train("live", no_copy_is_made), 2), saved(blocking, 2))


@pytest.mark.contract(29)
def test_a_save_returns_before_the_write_and_reports_it_later(tmp_path: Path) -> None:
    ready, reported = threading.Event(), []
    given = saver(tmp_path)
    given._durable = reported.append
    with held_until(ready):
        given.begin(1, state(1.0))
        given.poll()
        assert reported == []
        assert given.newest is None
        assert list(checkpoint.complete(tmp_path)) == []
        ready.set()
        given.finish()
    assert [one.step for one in reported] == [1]
    assert checkpoint.verify(reported[0].folder) == 1


@pytest.mark.contract(29)
def test_a_second_checkpoint_waits_for_the_first_write(
    tmp_path: Path,
) -> None:
    ready, warnings = threading.Event(), []
    given = saver(tmp_path, keep_last=5)
    given._warn = warnings.append
    with held_until(ready) as most, mock.patch.object(saving, "_WAIT_WARNED_SECONDS", -1.0):
        given.begin(1, state(1.0))
        threading.Timer(0.05, ready.set).start()
        for step in (2, 3, 4):
            given.begin(step, state(step))
        given.finish()
    assert most == [1]
    assert [path.name[-1] for path in checkpoint.complete(tmp_path)] == ["4", "3", "2", "1"]
    assert len(warnings) == 1, "reported once"
    assert "raise checkpoint.every_steps" in warnings[0]


@pytest.mark.contract(29)
def test_a_failure_in_the_thread_is_raised_at_the_next_poll(tmp_path: Path) -> None:
    given = saver(tmp_path / "missing")
    (tmp_path / "missing").touch()  # A file in the place of the folder.
    given.begin(1, state(1.0))
    given._thread.join()
    with pytest.raises(EngineError, match="step 1 could not be written") as caught:
        given.poll()
    assert caught.value.reason == "storage"
    given.poll()  # Once.


@pytest.mark.contract(29)
def test_a_run_whose_checkpoint_fails_ends_with_the_reason_and_the_step(
    pool: Pool, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/checkpoints").touch()
    with pytest.raises(EngineError, match="step 2 could not be written") as caught:
        pool.run(cases.train, Toy(), OPTIONS, tmp_path / "run", world_size=1)
    assert caught.value.reason == "storage"


@pytest.mark.contract(29)
def test_without_memory_for_a_copy_training_waits_with_a_warning(tmp_path: Path) -> None:
    warnings: list[str] = []
    given = saver(tmp_path)
    given._warn = warnings.append
    with mock.patch.object(HostCopy, "take", side_effect=torch.OutOfMemoryError("no room")):
        given.begin(1, state(1.0))
    given.begin(2, state(2.0))
    assert given.newest is not None
    assert given.newest.step == 2, "durable at once"
    assert given._thread is None
    assert warnings == [
        "no memory for a copy of the state: training waits while checkpoints are written (no room)"
    ]


@pytest.mark.contract(29)
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_failing_step_lets_the_current_write_finish(
    pool: Pool, tmp_path: Path, strategy: str
) -> None:
    options = OPTIONS | {"checkpoint": {"every_steps": 3}} | strategy_of(strategy)
    with pytest.raises(EngineError, match="the loss of step 4 is nan"):
        pool.run(cases.train, Toy(), options, tmp_path, written_only_after_a_failure, world_size=2)
    assert checkpoint.verify(tmp_path / "checkpoints/step-00000003") == 3
    assert [event["step"] for event in events(tmp_path, "checkpoint")] == [3]


# --- on a device


@pytest.mark.contract(29)
@pytest.mark.gpu
def test_on_a_device_the_copy_precedes_the_next_update() -> None:
    device = torch.device("cuda")
    weights = torch.zeros(64, 1024, 1024, device=device)
    moments = torch.zeros(64, 1024, 1024, device=device)
    copies = HostCopy(device)
    for step in range(1, 6):
        weights.fill_(step)
        moments.fill_(step)
        taken = copies.take({"model": {"w": weights}, "optimizer": {"m": moments}})
        copies.hold()
        weights.fill_(-1.0)
        moments.fill_(-1.0)
        copies.wait()
        assert taken["model"]["w"].is_pinned()
        for copied in (taken["model"]["w"], taken["optimizer"]["m"]):
            assert float(copied.min()) == float(copied.max()) == step
