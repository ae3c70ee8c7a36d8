"""Starts that are refused because no checkpoint can be read, or because none could be later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lockstep.engine.checkpoints import checkpoint
from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.interface import Task
from tests.engine.cases import planned
from tests.engine.spool import events, records
from tests.engine.start_cases import OPTIONS, Line

EVERY = {"steps": 4, "checkpoint": {"every_steps": 1, "keep_last": 3}}


def run(folder: Path, task: Task | None = None) -> None:
    """Train, or resume from the folder's own checkpoints."""
    plan, spec = planned(OPTIONS | EVERY, 1)
    Trainer(spec, plan, task or Line(), Ranks(), folder, resumes=True).run()


def tear(folder: Path) -> None:
    state = folder / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-10])


def replace_by_text(folder: Path) -> None:
    """Write a file that no program can read, with a manifest that declares it complete."""
    (folder / "state.safetensors").write_bytes(b"no state")
    manifest = json.loads((folder / "manifest.json").read_text())
    found = checkpoint.digest_of(folder / "state.safetensors")
    manifest["files"]["state.safetensors"] = {"bytes": found.size_bytes, "sha256": found.sha256}
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("damage", [tear, replace_by_text])
def test_a_run_resumes_from_the_newest_readable_checkpoint(tmp_path: Path, damage: Any) -> None:
    run(tmp_path)
    damage(tmp_path / "checkpoints/step-00000004")
    run(tmp_path)
    (resumed,) = events(tmp_path, "resumed")
    assert resumed["from"] == "checkpoints/step-00000003"


@pytest.mark.parametrize(
    ("damage", "named"),
    [(tear, "state.safetensors has "), (replace_by_text, "its state cannot be read: ")],
)
def test_a_run_with_only_damaged_checkpoints_does_not_start_over(
    tmp_path: Path, damage: Any, named: str
) -> None:
    run(tmp_path)
    for folder in (tmp_path / "checkpoints").iterdir():
        damage(folder)
    before = records(tmp_path)
    with pytest.raises(EngineError) as refused:
        run(tmp_path)
    assert refused.value.reason == "storage"
    text = str(refused.value)
    assert text.startswith(f"every checkpoint of this run is damaged (step-00000004: {named}")
    assert text.endswith(f"to begin again at step 0, delete {tmp_path / 'checkpoints'}")
    assert records(tmp_path) == before


class Noted(nn.Linear):
    """Layer whose extra state grows by one entry with each call in training."""

    def __init__(self, kept: type = list) -> None:
        super().__init__(2, 1)
        self.notes: list[float] = []
        self.given: list[float] = []
        self.kept = kept

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.notes.append(float(len(self.notes)))
        return super().forward(x)

    def get_extra_state(self) -> Any:
        return torch.tensor(self.notes) if self.kept is list else self.kept()

    def set_extra_state(self, state: Any) -> None:
        self.notes = state.tolist()
        self.given = list(self.notes)


class Notes(Line):
    def __init__(self, kept: type = list) -> None:
        self.layer = Noted(kept)

    def model(self) -> nn.Module:
        return self.layer


def test_extra_state_of_another_length_is_given_to_the_module(tmp_path: Path) -> None:
    again = Notes()
    run(tmp_path, Notes())
    saved = checkpoint.load(tmp_path / "checkpoints/step-00000004")["model"]["_extra_state"]
    run(tmp_path, again)
    assert [each["step"] for each in events(tmp_path, "resumed")] == [4]
    assert again.layer.given == saved.tolist() != []


def test_unreadable_extra_state_is_refused_before_the_first_step(
    tmp_path: Path,
) -> None:
    with pytest.raises(EngineError, match="get_extra_state") as refused:
        run(tmp_path, Notes(Line))
    assert refused.value.reason == "bad_spec"
    assert "the model: return tensors, numbers, text, lists and dicts only" in str(refused.value)
    assert not (tmp_path / "checkpoints").exists()
