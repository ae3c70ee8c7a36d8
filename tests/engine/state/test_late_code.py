"""Files of the job's code that are imported after the start, and what torch does to its classes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.engine.checkpoints import checkpoint
from tests.engine.runtime.test_alone import engine
from tests.engine.spool import events, records

TASK = """
import torch
from torch.utils.data import TensorDataset
from lockstep import Task

class Late(Task):
    def model(self):
        return torch.nn.Linear(3, 1).double()

    def dataset(self, split):
        x = torch.arange(24.0, dtype=torch.float64).reshape(8, 3) / 24
        return TensorDataset(x, x.sum(1))

    def loss(self, model, batch):
        import error
        x, y = batch
        return error.squared(model(x).squeeze(-1), y).sum()

    def evaluate(self, model, batch):
        import helper
        helper.calls.append(len(helper.calls))
        return {"calls": (torch.tensor(float(len(helper.calls))), 1.0)}
"""
ERROR = "def squared(found, right):\n    return (found - right) ** 2\n"
HELPER = "calls = []\n"
OPTIMIZER = """
import torch

class Own(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        return super().step(closure)

class Plain(torch.optim.SGD):
    pass
"""
OWN = {"name": "opts.Own", "lr": 0.01}
RUNS = {
    "sgd": ({"name": "sgd", "lr": 0.01}, ""),
    "own": (OWN, ""),
    "known": (OWN, "import opts\n"),
    "no step of its own": ({"name": "opts.Plain", "lr": 0.01}, "import opts\n"),
}


@pytest.mark.contract(45)
@pytest.mark.parametrize(("optimizer", "first"), RUNS.values(), ids=RUNS)
def test_a_module_that_is_imported_late_is_restored(
    tmp_path: Path, optimizer: dict[str, Any], first: str
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    files = {"task.py": first + TASK, "helper.py": HELPER, "error.py": ERROR, "opts.py": OPTIMIZER}
    for name, text in files.items():
        (code / name).write_text(text)
    train = {
        "task": "task.py:Late",
        "batch": {"size": 4, "micro_size": 4},
        "steps": 8,
        "optimizer": optimizer,
        "checkpoint": {"every_steps": 4},
        "eval": {"every_steps": 4},
    }
    (code / "job.yaml").write_text(json.dumps({"name": "late", "kind": "train", "train": train}))
    whole, again = tmp_path / "whole", tmp_path / "again"
    ended = engine(code / "job.yaml", "--out", whole)
    assert ended.returncode == 0, ended.stderr
    shutil.copytree(whole / "checkpoints/step-00000004", again / "checkpoints/step-00000004")
    ended = engine(code / "job.yaml", "--out", again)
    assert ended.returncode == 0, ended.stderr
    assert [(each["step"], each["exact"]) for each in events(again, "resumed")] == [(4, True)]
    one, two = (
        checkpoint.load(out / "checkpoints/step-00000008")["model"] for out in (whole, again)
    )
    assert all(torch.equal(value, two[name]) for name, value in one.items())
    assert records(whole)[8]["eval/calls"] == records(again)[8]["eval/calls"]
    assert records(whole)[8]["eval/calls"] > records(whole)[4]["eval/calls"]
