"""Information for a user about a job that fails or is cancelled.

Not here: processes that die or refuse to end (``tests.faults.test_ranks``).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.builders import digits, script, slow
from tests.harness.processes import until
from tests.harness.service import Service

pytestmark = pytest.mark.e2e


def test_user_code_that_raises_is_named_with_rank_exception_and_step(
    lockstep: Service, tmp_path: Path
) -> None:
    spec = slow(lockstep, tmp_path, args={"fail_at": 20}, steps=50)
    (tmp_path / "job.json").write_text(json.dumps(spec))
    done = lockstep.run("submit", str(tmp_path / "job.json"), "-y", "--code", str(tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    shown = done.stdout + done.stderr
    for word in (
        "user_error",
        "rank 1",
        "RuntimeError",
        "the labels of shard 7 are damaged",
        "task.py",
    ):
        assert word in shown
    outcome = lockstep.job("slow")["outcome"]
    assert outcome["rank"] == 1
    assert outcome["exception"] == "RuntimeError: the labels of shard 7 are damaged"
    assert "in loss" in outcome["traceback"]
    # Each step has 16 / 2 / 4 = 2 micro-batches; warm-up passes count too, so only the order of
    # magnitude is fixed here.
    assert 5 <= outcome["last_step"] <= 10


def test_a_failed_task_is_not_tried_again(lockstep: Service, tmp_path: Path) -> None:
    job = lockstep.submit(slow(lockstep, tmp_path, "once", args={"fail_at": 0}, steps=5))
    assert lockstep.ended(job["id"])["attempt"]["number"] == 1


CUT = '''
import os
import torch
from torch import nn
from lockstep import Task


class Fit(Task):
    """Rank 1 of the tensor group needs too much memory for more than two samples."""

    def model(self):
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()

    def tensor_plan(self, model):
        return {"0": "colwise", "2": "rowwise"}

    def dataset(self, split):
        x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        return torch.utils.data.TensorDataset(x, x.sum(1))

    def loss(self, model, batch):
        x, y = batch
        found = model(x).squeeze(-1)
        if torch.is_grad_enabled() and len(x) > 2 and os.environ.get("RANK") == "1":
            torch.empty(2**60)  # Torch's allocator refuses it.
        return ((found - y) ** 2).sum()
'''


def test_a_cut_model_that_runs_out_of_memory_goes_on_with_half_the_micro_batch(
    lockstep: Service, tmp_path: Path
) -> None:
    (tmp_path / "fit.py").write_text(CUT)
    cut = {
        "name": "cut-too-large",
        "kind": "train",
        "code": {"upload": lockstep.upload(tmp_path)},
        "resources": {"gpus": 2},
        "retry": {"max": 0},
        "train": {
            "task": "fit.py:Fit",
            "batch": {"size": 8, "micro_size": 4},
            "steps": 4,
            "parallel": {"tensor": 2},
        },
    }
    ended = lockstep.ended(lockstep.submit(cut)["id"])
    assert (ended["state"], ended["attempt"]["number"]) == ("succeeded", 2)
    assert (ended["plan"]["micro_batch_size"], ended["plan"]["accumulation_steps"]) == (2, 4)
    words = "out of memory: the next attempt runs micro-batches of 2 instead of 4"
    shown = lockstep.events(ended["id"])
    assert any(words in (event["message"] or "") for event in shown)


def test_cancelling_a_queued_job_takes_one_request(lockstep: Service) -> None:
    holders = [lockstep.submit(script("holder", ["sleep", "60"], gpus=4))]
    until(lambda: lockstep.job(holders[0]["id"])["state"] == "running", 60, "holder running")
    waiting = lockstep.submit(script("waiting", ["true"], gpus=1))
    shown = until(lambda: lockstep.job(waiting["id"])["queue"], 60, "queue place")
    assert shown["position"] == 1
    assert "free" in shown["reason"]
    assert lockstep.http.post(f"/v1/jobs/{waiting['id']}/cancel").json()["state"] == "cancelled"
    assert lockstep.run("cancel", holders[0]["id"]).returncode == 0
    assert lockstep.ended(holders[0]["id"], 20)["state"] == "cancelled"


def test_a_task_that_cannot_be_built_fails_without_a_retry(
    lockstep: Service, tmp_path: Path
) -> None:
    job = lockstep.submit(slow(lockstep, tmp_path, "wrong-args", args={"colour": "red"}, steps=5))
    ended = lockstep.ended(job["id"])
    assert ended["outcome"]["reason"] == "bad_spec"
    assert "colour" in ended["outcome"]["message"] + (ended["outcome"]["exception"] or "")


def test_the_command_follows_a_job_to_its_closing_table(lockstep: Service, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps(digits("followed", steps=8)))
    done = lockstep.run("submit", str(tmp_path / "job.json"), "-y")
    shown = done.stdout + done.stderr
    assert done.returncode == 0, shown
    for word in (
        "64 = 2 ranks × 8 samples × 4 accumulation steps",
        "succeeded",
        "loss",
        "checkpoint",
    ):
        assert word in shown
