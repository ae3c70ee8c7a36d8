"""A train job that fails at a chosen moment, under the real launcher.

The fault is in the job's own code, so that engine and launcher are unchanged. If the moment is
inside the engine, the task replaces a function of torch or of the system that the engine calls
there.

Not here: the required result (``tests.engine.launcher.faults.test_failures`` and its neighbours).
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lockstep.domain.life import attempt as files
from lockstep.domain.spec.reading import read_spec
from lockstep.domain.training.plan import plan_of
from tests.harness.attempts import Attempt
from tests.harness.processes import alive, until

STEPS = 6
STRATEGIES = {"all-reduce": {"bucket_cap_mb": 1e-6}, "stream": {"name": "fsdp"}}
"""Of a fault that needs one."""
CODE = {"upload": "0" * 64}

TASK = '''
import os, pathlib, signal, subprocess, time
import torch
import torch.distributed as dist
from torch import nn
from lockstep import Task

RANK = int(os.environ["RANK"])


def strike(cause):
    """Apply the fault, at the moment and on the rank of the drill."""
    pathlib.Path("struck").touch()
    if cause == "raise":
        raise RuntimeError("this is a drill")
    if cause.startswith("exit "):
        os._exit(int(cause.removeprefix("exit ")))
    if cause == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if cause == "hang":
        while True:
            time.sleep(3600)
    if cause == "slow":
        time.sleep(1.0)
    if cause == "disagree in shape":
        dist.all_reduce(torch.ones(3 if RANK else 2))
    if cause == "disagree in order":
        steps = [lambda: dist.all_reduce(torch.ones(2)), lambda: dist.broadcast(torch.ones(2), 0)]
        for step in steps[::-1] if RANK else steps:
            step()
    if cause == "disagree in number" and RANK:
        dist.all_reduce(torch.ones(2))


class Points(torch.utils.data.Dataset):
    def __init__(self, task):
        self.task, self.fetched = task, 0

    def __len__(self):
        return 40

    def __getitem__(self, item):
        if self.task.passes >= 6:  # The set-up fetches samples before its four calls and two passes.
            self.fetched += 1
            if self.task.moment == "data" and self.fetched == self.task.at:
                self.task.strike()
        x = torch.randn(4, generator=torch.Generator().manual_seed(item), dtype=torch.float64)
        return x, x.sum()


class Drill(Task):
    not_state = ("passes", "itself")

    def __init__(self, moment, cause, rank, at):
        self.moment, self.cause, self.rank, self.at, self.calls = moment, cause, rank, at, 0
        self.passes = 0
        self.itself = id(self)  # not that of the copy for the additivity check
        # A process that outlives its parent unless it is searched for. The process of the forecast
        # creates a task too, and it may be killed while it writes, as a rank may.
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        written = pathlib.Path(f".child-{child.pid}")
        written.write_text(str(child.pid))
        written.rename(f"child-{child.pid}")
        self.replace(os, "fsync", "checkpoint")
        self.replace(dist, "destroy_process_group", "shutdown")
        self.replace(dist, "send", "stream")

    def replace(self, module, name, moment):
        if moment == self.moment:
            function, left = getattr(module, name), [self.at]
            def dying(*arguments, **options):
                left[0] -= 1
                if left[0] <= 0:
                    self.strike()
                return function(*arguments, **options)
            setattr(module, name, dying)

    def strike(self):
        if self.rank in (RANK, -1):
            strike(self.cause)

    def model(self):
        torch.manual_seed(1)
        if self.moment == "init":
            self.strike()
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
        if self.moment == "all-reduce":
            # The gradient of the last layer is in flight already: each has its own message.
            def dying(_):
                if self.calls == self.at:
                    self.strike()
            model[0].weight.register_post_accumulate_grad_hook(dying)
        return model

    def dataset(self, split):
        return Points(self)

    def loss(self, model, batch):
        self.calls, self.passes = self.calls + 1, self.passes + 1
        if self.moment == "forward" and self.calls == self.at and self.itself == id(self):
            self.strike()
        x, y = batch
        return ((model(x).squeeze(-1) - y) ** 2).sum()

    def evaluate(self, model, batch):
        if self.moment == "eval" and self.itself == id(self):
            self.strike()
        return {"loss": (self.loss(model, batch), len(batch[0]))}
'''


@dataclass(frozen=True)
class Fault:
    """Kind and moment of a fault."""

    moment: str = "never"
    cause: str = "nothing"
    rank: int = 1
    """-1: on every rank."""
    at: int = 0
    """Calls of ``loss`` on that rank, two per step; for
    ``data``, items fetched for training, four of them per step; for ``stream``, messages of the
    checkpoint's state."""


def prepare(attempt: Attempt, fault: Fault, *, resume: Path | None = None, **train: Any) -> Attempt:
    """Prepare a job of six steps on two ranks, two micro-batches each, with a checkpoint every
    second step."""
    code = attempt.folder / files.CODE
    code.mkdir(parents=True)
    (code / "drill.py").write_text(TASK)
    if resume is not None:
        shutil.copytree(resume, attempt.folder / files.RESUME)
    document = {
        "task": "drill.py:Drill",
        "task_args": asdict(fault),
        "batch": {"size": 8, "micro_size": 2},
        "steps": STEPS,
        "optimizer": {"name": "adamw", "lr": 0.01},
        "checkpoint": {"every_steps": 2},
        **({"strategy": STRATEGIES[fault.moment]} if fault.moment in STRATEGIES else {}),
        **train,
    }
    spec = read_spec(
        {
            "name": "drill",
            "kind": "train",
            "code": CODE,
            "resources": {"gpus": 2},
            "train": document,
        }
    )
    return attempt.assign(spec.model_dump(), ranks=2, plan=plan_of(spec), stop_grace_seconds=5.0)


def struck(attempt: Attempt, seconds: float = 90.0) -> float:
    """Wait for the fault; return its time in seconds since the epoch."""
    file = attempt.folder / files.CODE / "struck"
    until(lambda: file.exists() or attempt.process_ended(), seconds=seconds, what="the fault")
    assert file.exists(), why(attempt)
    return file.stat().st_mtime


def all_processes(attempt: Attempt) -> list[int]:
    """Return the processes of the ranks, and the children of ranks and forecast."""
    children = (attempt.folder / files.CODE).glob("child-*")
    return [*attempt.ranks().values(), *(int(child.read_text()) for child in children)]


def all_gone(attempt: Attempt) -> bool:
    """Return True if all of them have ended."""
    return not any(map(alive, all_processes(attempt)))


def checkpoints(attempt: Attempt) -> list[Path]:
    """Return the complete checkpoints, the newest first."""
    found = (attempt.folder / files.CHECKPOINTS).glob(f"step-*/{files.MANIFEST}")
    return sorted((manifest.parent for manifest in found), reverse=True)


def why(attempt: Attempt) -> str:
    """Return the text to print when a test fails."""
    errors = [file.read_text() for file in (attempt.folder / files.ERRORS).glob("*")]
    lines = [f"{record.rank} {record.stream}: {record.text}" for record in attempt.records()]
    return json.dumps(errors, indent=1) + os.linesep + os.linesep.join(lines[-60:])
