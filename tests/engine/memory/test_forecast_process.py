"""Forecast in a process beside a run: it arrives or has a reason, and does not affect the run."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.domain.spec.train import Train
from lockstep.engine.memory.forecast_process import PredictionProcess, StartForecast
from lockstep.engine.task.loading import load_task

DEADLINE_SECONDS = 570.0
"""Five seconds of a core at a low priority: minutes, if other processes keep all cores busy."""
PATIENCE_SECONDS = 0.05

pytestmark = pytest.mark.timeout(600)

TASK = '''
import functools, sys
import torch
from torch import nn
from lockstep import Task

print("words of the task's own")

@functools.cache
def mask(n):
    return torch.ones(n)

class Sample(tuple):
    """A type from the file of the task."""

class Mine(Task):
    def __init__(self, raises=False, dies=False):
        self.raises, self.dies = raises, dies
    def model(self):
        if self.dies:
            import os
            os.abort()
        return nn.Linear(16, 16, bias=False)
    def dataset(self, split):
        return [Sample((torch.ones(16),))] * 8
    def collate(self, samples):
        return torch.stack([sample[0] for sample in samples])
    def loss(self, model, batch):
        if self.raises:
            raise RuntimeError("no such luck")
        return (model(batch) * mask(16)).sum()
'''


def train_of(**args: Any) -> Train:
    return Train.model_validate(
        {
            "task": "mine.py:Mine",
            "task_args": args,
            "batch": {"size": 8, "micro_size": 4},
            "steps": 2,
        }
    )


def begun(code: Path, train: Train, sample: Any, *, forks: bool = True) -> PredictionProcess:
    return PredictionProcess(
        train, code, micro_batch_size=4, world_size=1, sample=sample, forks=forks
    )


def awaited(forecast: PredictionProcess) -> StartForecast:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        found = forecast.arrived()
        if found is not None:
            assert forecast.arrived() is None  # once
            return found
        time.sleep(PATIENCE_SECONDS)
    raise AssertionError(f"no answer within {DEADLINE_SECONDS} s")


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mine.py").write_text(TASK)
    return tmp_path


@pytest.mark.parametrize("forks", [True, False], ids=["forked", "started"])
def test_a_task_of_a_user_gets_its_forecast_and_flops(code: Path, forks: bool) -> None:
    train = train_of()
    sample = load_task(train.task, train.task_args, code).dataset("train")[0]
    found = awaited(begun(code, train, sample, forks=forks))
    assert found.why is None
    assert found.memory is not None
    assert found.memory.weights == 4 * 16 * 16
    assert (
        found.flops_per_sample == 2 * 2 * 16 * 16
    )  # No gradient with respect to the samples is requested: two products, not three.


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"raises": True}, "RuntimeError: no such luck"),
        ({"dies": True}, "its process ended by signal 6"),
    ],
    ids=["raises", "dies"],
)
def test_a_task_that_fails_there_has_a_reason_and_no_forecast(
    code: Path, args: Any, why: str
) -> None:
    train = train_of(**args)
    sample = load_task(train.task, train.task_args, code).dataset("train")[0]
    found = awaited(begun(code, train, sample))
    assert found.memory is None
    assert why in (found.why or "")


def test_a_sample_that_cannot_be_pickled_is_a_reason_at_once(code: Path) -> None:
    found = begun(code, train_of(), lambda: None).arrived()
    assert found is not None
    assert "cannot be pickled" in (found.why or "")


def test_a_sample_that_is_a_view_is_sent_without_its_base(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def start(request: Any, *, forks: bool) -> Any:
        sizes.append(len(request.sample))
        raise OSError("not today")

    monkeypatch.setattr("lockstep.engine.memory.forecast_process._start", start)
    begun(code, train_of(), (torch.zeros(1_000_000, 16)[7],))
    assert sizes[0] < 10_000


class Inherited:
    """Garbage of a rank, which a collector alone finds."""

    def __init__(self, parent: int, found: Path) -> None:
        self.itself, self.parent, self.found = self, parent, found

    def __del__(self) -> None:
        if os.getpid() != self.parent:
            self.found.touch()


def test_a_fork_destroys_nothing_of_its_rank(code: Path) -> None:
    """The code that Python runs at each fork may start a collection, before any of the engine."""
    parents = [os.getpid()]
    os.register_at_fork(
        before=lambda: Inherited(parents.pop(), code / "destroyed") if parents else None
    )
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        forecast = begun(code / "elsewhere", train_of(), None)
    finally:
        gc.set_threshold(*thresholds)
    assert awaited(forecast).why is not None
    assert not (code / "destroyed").exists()


@pytest.mark.parametrize("forks", [True, False], ids=["forked", "started"])
def test_the_process_ends_when_it_is_cancelled(code: Path, forks: bool) -> None:
    forecast = begun(code, train_of(), (torch.ones(16),), forks=forks)
    process = forecast._process
    assert process is not None
    forecast.close()
    assert process.returncode == -signal.SIGKILL
    assert forecast.arrived() is None


@pytest.mark.parametrize("forks", [True, False], ids=["forked", "started"])
def test_the_process_ends_with_its_parent(code: Path, forks: bool) -> None:
    script = (
        "import sys, time; from pathlib import Path; from tests.engine.memory.test_forecast_process import "
        "begun, train_of\n"
        "import torch; forecast = begun(Path(sys.argv[1]), train_of(), (torch.ones(16),), "
        "forks=sys.argv[2] == 'True'); print(forecast._process.pid, flush=True)\n"
        "time.sleep(600)"
    )
    root = Path(__file__).parents[3]
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(code), str(forks)],
        stdout=subprocess.PIPE,
        cwd=root,
        text=True,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while _runs(child) and time.monotonic() < deadline:
        time.sleep(PATIENCE_SECONDS)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
