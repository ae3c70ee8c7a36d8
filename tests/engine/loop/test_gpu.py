"""The engine on a CUDA device: the same training as on the CPU, and an exact resume.

One device is enough. Tests that need several (NCCL between ranks) are not here, because NCCL
refuses two ranks on one device.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lockstep.engine.checkpoints import checkpoint
from tests.engine.spool import events, records

ROOT = Path(__file__).resolve().parents[3]

pytestmark = [
    pytest.mark.gpu,
]


def train(
    tmp_path: Path, name: str, *, steps: int, cuda: bool = True, micro_size: int = 8, into: str = ""
) -> Path:
    """Train digits on one rank; return the folder of the run."""
    (tmp_path / f"{name}.yaml").write_text(
        "name: digits\nkind: train\ntrain:\n"
        "  task: image_classification\n"
        f"  batch: {{size: 64, micro_size: {micro_size}}}\n"
        f"  steps: {steps}\n"
        "  optimizer: {name: adamw, lr: 3.0e-3}\n"
        "  checkpoint: {every_steps: 5, keep_last: 10}\n"
        "  deterministic: true\n"
    )
    folder = tmp_path / (into or name)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "lockstep.engine",
            str(tmp_path / f"{name}.yaml"),
            "--out",
            str(folder),
        ],
        env=os.environ | ({} if cuda else {"CUDA_VISIBLE_DEVICES": ""}),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def model(folder: Path, step: int) -> dict[str, torch.Tensor]:
    return checkpoint.load(folder / f"checkpoints/step-{step:08d}")["model"]


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """‖a − b‖ / ‖b‖ over all parameters."""
    square = sum(((one[name] - other[name]) ** 2).sum().item() for name in other)
    return (square / sum((value**2).sum().item() for value in other.values())) ** 0.5


def test_twenty_steps_on_the_device_equal_those_on_the_cpu(tmp_path: Path) -> None:
    device, host = (
        train(tmp_path, "device", steps=20),
        train(tmp_path, "host", steps=20, cuda=False),
    )
    there, here = records(device), records(host)
    assert sorted(there) == sorted(here) == list(range(1, 21))
    assert [there[step]["train/loss"] for step in there] == pytest.approx(
        [here[step]["train/loss"] for step in here], rel=5e-3
    )
    assert distance(model(device, 5), model(host, 5)) < 1e-3


def test_the_micro_batch_does_not_change_the_weights_on_the_device(tmp_path: Path) -> None:
    one, eight = (
        train(tmp_path, "one", steps=5, micro_size=64),
        train(tmp_path, "eight", steps=5, micro_size=8),
    )
    assert distance(model(one, 5), model(eight, 5)) < 1e-4


def test_a_deterministic_run_resumes_bitwise_on_the_device(tmp_path: Path) -> None:
    whole = train(tmp_path, "whole", steps=10)
    parts = train(tmp_path, "whole", steps=10, into="parts")
    shutil.rmtree(
        parts / "checkpoints/step-00000010"
    )  # As if the run had been killed before its end.
    resumed = train(tmp_path, "whole", steps=10, into="parts")
    assert events(resumed, "resumed")[-1]["step"] == 5
    assert events(resumed, "resumed")[-1]["exact"]
    for name, value in model(whole, 10).items():
        assert torch.equal(value, model(resumed, 10)[name]), name
