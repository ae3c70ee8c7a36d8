"""The engine without the service: real processes, started from the command line."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from lockstep.domain.life.attempt import AssignmentFile
from lockstep.domain.spec.reading import read_spec
from lockstep.domain.training.plan import plan_of
from lockstep.engine.checkpoints import checkpoint
from tests.engine.spool import events, records
from tests.harness import forks
from tests.harness.processes import until

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}

TASK = """
import os, pathlib, time
import torch
from torch import nn
from lockstep import Task


class Points(torch.utils.data.Dataset):
    def __init__(self, pause):
        self.pause = pause

    def __len__(self):
        return 100

    def __getitem__(self, item):
        time.sleep(self.pause)
        x = torch.randn(4, generator=torch.Generator().manual_seed(item))
        return x, x.sum()


class Fit(Task):
    def __init__(self, pause=0.0, fail_at=None, touch=None):
        self.pause, self.fail_at, self.touch, self.seen = pause, fail_at, touch, 0

    def model(self):
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def dataset(self, split):
        return Points(self.pause)

    def loss(self, model, batch):
        self.seen += 1
        if self.seen == self.fail_at and os.environ["RANK"] == "1":
            raise RuntimeError("the labels of shard 7 are damaged")
        if self.seen == 20 and self.touch:
            pathlib.Path(self.touch).touch()
        x, y = batch
        return ((model(x).squeeze(-1) - y) ** 2).sum()
"""


def job(folder: Path, *, args: dict[str, Any] | None = None, **train: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task.py").write_text(TASK)
    document = {
        "name": "fit",
        "kind": "train",
        "resources": {"gpus": 2},
        "train": {
            "task": "task.py:Fit",
            "task_args": args or {},
            "batch": {"size": 16, "micro_size": 4},
            "steps": 20,
            "optimizer": {"name": "adamw", "lr": 0.01},
            "checkpoint": {"every_steps": 5},
            **train,
        },
    }
    (folder / "job.yaml").write_text(json.dumps(document))  # JSON is YAML.
    return folder / "job.yaml"


def engine(
    *arguments: str | Path, ranks: int = 1, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    return forks.ended(start(*arguments, ranks=ranks, cwd=cwd, **forks.PIPES), 120)


def start(*arguments: str | Path, ranks: int = 1, **more: Any) -> forks.Forked:
    """Start the engine, under torchrun for several ranks."""
    words = ["lockstep.engine"]
    if ranks > 1:
        under = ("torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "-m")
        words = [*under, *words]
    more = {"modules": forks.ENGINE, "env": ENVIRONMENT, "cwd": ROOT, **more}
    return forks.with_all_below(*words, *arguments, **more)


def test_a_run_stopped_and_resumed_under_torchrun_ends_bitwise_equal(
    tmp_path: Path,
) -> None:
    whole = engine(job(tmp_path / "job"), "--out", tmp_path / "whole", ranks=2)
    assert whole.returncode == 0, whole.stderr
    lines = whole.stdout.splitlines()
    assert lines[0] == "16 = 2 ranks × 4 samples × 2 accumulation steps"
    assert lines[-1].startswith("fit: done after step 20, loss 0.")
    assert lines[-1].endswith("step-00000020")
    assert sorted(records(tmp_path / "whole")) == list(range(1, 21))

    out = tmp_path / "out"
    stopped = engine(
        job(tmp_path / "job", args={"touch": str(out / "stop")}), "--out", out, ranks=2
    )
    assert stopped.returncode == 0, stopped.stderr
    done = int(
        stopped.stdout.splitlines()[-1].removeprefix("fit: stopped after step ").split(",")[0]
    )
    assert 5 < done < 20
    (out / "stop").unlink()
    # A torn checkpoint, newer than the complete ones, is skipped.
    shutil.copytree(out / f"checkpoints/step-{done:08d}", out / "checkpoints/step-00000019")
    (out / "checkpoints/step-00000019/state.safetensors").write_bytes(b"torn")
    went_on = engine(job(tmp_path / "job"), "--out", out, ranks=2)
    assert went_on.returncode == 0, went_on.stderr
    assert [skipped["folder"] for skipped in events(out, "checkpoint_skipped")] == ["step-00000019"]
    assert [resumed["step"] for resumed in events(out, "resumed")] == [done]
    assert sorted(records(out)) == list(range(1, 21))

    one, two = (
        checkpoint.load(folder / "checkpoints/step-00000020")
        for folder in (tmp_path / "whole", out)
    )
    assert all(torch.equal(value, two["model"][name]) for name, value in one["model"].items())
    for index, state in one["optimizer"]["state"].items():
        assert all(
            torch.equal(value, two["optimizer"]["state"][index][name])
            for name, value in state.items()
        )


def attempt(folder: Path, *, world_size: int, **more: Any) -> Path:
    """Return the folder of an attempt as an agent prepares it."""
    document = json.loads(job(folder / "code", **more).read_text()) | {"code": {"upload": "0" * 64}}
    spec = read_spec(document | {"resources": {"gpus": world_size}})
    assignment = AssignmentFile(
        job_id="job",
        attempt_number=1,
        assignment_id="assignment",
        spec=spec,
        plan=plan_of(spec),
        node_name="here",
        ranks_here=world_size,
        world_size=world_size,
        devices=list(range(world_size)),
        device_kind="cpu",
        rendezvous_port=0,
        stop_grace_seconds=5,
        exit_stall_seconds=30,
    )
    (folder / "assignment.json").write_text(assignment.model_dump_json())
    return folder


@contextlib.contextmanager
def running(folder: Path) -> Iterator[psutil.Process]:
    with start("--attempt", folder, stdout=subprocess.DEVNULL) as process:
        try:
            yield psutil.Process(process.pid)
        finally:
            process.kill()


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_loader_workers_die_with_their_rank(tmp_path: Path, sent: signal.Signals) -> None:
    options = {"loader": {"workers": 2}, "steps": 100_000}
    folder = attempt(tmp_path / "attempt", world_size=1, args={"pause": 0.005}, **options)
    with running(folder) as rank:
        spool = folder / "spool/metrics.jsonl"
        until(lambda: spool.exists() and spool.stat().st_size, 60, "first step")
        workers = [
            child for child in rank.children(recursive=True) if child.name() == "pt_data_worker"
        ]
        assert len(workers) == 2
        rank.send_signal(sent)
        assert psutil.wait_procs(workers, timeout=60)[1] == []


def test_loader_workers_are_gone_when_a_run_ends(tmp_path: Path) -> None:
    options = {"loader": {"workers": 2}, "steps": 3, "eval": {"every_steps": 3}}
    done = engine("--attempt", attempt(tmp_path / "attempt", world_size=1, **options))
    assert done.returncode == 0, done.stderr
    assert not [
        p
        for p in psutil.process_iter(["cmdline"])
        if str(tmp_path) in " ".join(p.info["cmdline"] or [])
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": {"size": 0, "micro_size": 4}}, "train.batch.size: expected at least 1, got 0"),
        ({"precision": "fp8"}, "train.precision: expected fp32, bf16 or fp16, got 'fp8'"),
    ],
)
def test_a_file_that_cannot_be_run_is_refused_with_a_message(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    done = engine(job(tmp_path, **change))
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_class_that_is_missing_fails_with_the_reason(tmp_path: Path) -> None:
    folder = attempt(tmp_path / "attempt", world_size=1, task="task.py:Missing")
    assert engine("--attempt", folder).returncode == 1
    error = json.loads((folder / "errors/rank0.json").read_text())
    assert (error["reason"], error["step"]) == ("bad_spec", 0)
    assert "task.py has no class 'Missing'; its tasks: Fit" in error["exception"]


@pytest.mark.parametrize("name", ["gpt.yaml", "digits.yaml", "own_task/job.yaml"])
def test_the_examples_are_valid(name: str) -> None:
    from ruamel.yaml import YAML

    document = YAML(typ="safe").load((ROOT / "examples" / name).read_text())
    if "/" in name:
        document["code"] = {"path": str(ROOT / "examples/own_task")}
    spec = read_spec(document)
    plan = plan_of(spec)
    assert plan is not None
    assert plan.world_size == 2
    assert plan.accumulation_steps is not None
    assert plan.accumulation_steps >= 4


def test_the_own_task_example_learns(tmp_path: Path) -> None:
    done = engine(ROOT / "examples/own_task/job.yaml", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert records(tmp_path)[400]["eval/loss"] < 0.03


def test_many_micro_batches_may_open_more_files_than_the_soft_limit(
    tmp_path: Path,
) -> None:
    """Each tensor of a loader worker is a file while it lives, and two batches of them exist at
    once."""
    file = job(
        tmp_path / "job", batch={"size": 200, "micro_size": 1}, steps=2, loader={"workers": 1}
    )
    command = [sys.executable, "-m", "lockstep.engine", str(file), "--out", str(tmp_path / "out")]
    done = subprocess.run(
        ["bash", "-c", 'ulimit -Sn 200; exec "$@"', "bash", *command],
        check=False,
        env=ENVIRONMENT,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(records(tmp_path / "out")) == [1, 2]
