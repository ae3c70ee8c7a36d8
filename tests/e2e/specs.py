"""Small jobs that end in seconds, for the end-to-end tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def digits(name: str = "digits", *, steps: int = 12, **train: Any) -> dict[str, Any]:
    """Return handwritten digits on two ranks with four accumulation steps."""
    return {
        "name": name,
        "kind": "train",
        "resources": {"gpus": 2},
        "train": {
            "task": "image_classification",
            "task_args": {"width": 8},
            "batch": {"size": 64, "micro_size": 8},
            "steps": steps,
            "optimizer": {"name": "adamw", "lr": 3e-3},
            **train,
        },
    }


def script(
    name: str, command: list[str], *, upload: str | None = None, gpus: int = 1, **more: Any
) -> dict[str, Any]:
    """Return a torchrun script."""
    spec: dict[str, Any] = {
        "name": name,
        "kind": "script",
        "resources": {"gpus": gpus},
        "script": {"command": command},
        **more,
    }
    if upload is not None:
        spec["code"] = {"upload": upload}
    return spec


SLOW_TASK = '''
"""A person's own task: a linear fit whose samples take a while, so that a test can interrupt it, until a file says enough."""

import os
import time

import torch
from torch import nn

from lockstep import Task


class Points(torch.utils.data.Dataset):
    def __init__(self, pause, enough):
        self.pause, self.enough = pause, enough

    def __len__(self):
        return 1000

    def __getitem__(self, item):
        if self.enough is None or not os.path.exists(self.enough):
            time.sleep(self.pause)
        x = torch.randn(4, generator=torch.Generator().manual_seed(item))
        return x, x.sum()


class Slow(Task):
    def __init__(self, pause=0.0, fail_at=None, enough=None):
        self.pause, self.fail_at, self.enough, self.seen = pause, fail_at, enough, 0

    def model(self):
        return nn.Linear(4, 1)

    def dataset(self, split):
        return Points(self.pause, self.enough)

    def loss(self, model, batch):
        self.seen += 1
        if self.fail_at is not None and self.seen > self.fail_at and int(os.environ["RANK"]) == 1:
            raise RuntimeError("the labels of shard 7 are damaged")
        x, y = batch
        return ((model(x).squeeze(-1) - y) ** 2).sum()
'''


def slow(
    service: Any,
    folder: Path,
    name: str = "slow",
    *,
    args: dict[str, Any],
    steps: int,
    **train: Any,
) -> dict[str, Any]:
    """Return the task above, uploaded and ready to submit, on two ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task.py").write_text(SLOW_TASK)
    return {
        "name": name,
        "kind": "train",
        "resources": {"gpus": 2},
        "code": {"upload": service.upload(folder)},
        "train": {
            "task": "task.py:Slow",
            "task_args": args,
            "batch": {"size": 16, "micro_size": 4},
            "steps": steps,
            "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9},
            **train,
        },
    }
