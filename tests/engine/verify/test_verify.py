"""Verification by real runs: a right task agrees, and two wrong ones are named.

Each run is an attempt under the real launcher, and the kill is a real SIGKILL of its ranks.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lockstep.domain.spec.reading import read_spec
from lockstep.engine.verify import __main__ as command
from lockstep.engine.verify.hooks import start_one_ulp_away
from lockstep.engine.verify.local import LocalRuns
from lockstep.worker.launch.fork_client import ForkServer
from tests.harness.attempts import Attempt
from tests.harness.processes import alive, until

TASK = '''
import itertools
import torch
from torch import nn
from lockstep import Task


class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, item):
        x = torch.randn(4, generator=torch.Generator().manual_seed(item), dtype=torch.float64)
        return x, x.sum()


class Fit(Task):
    """With ``counts`` the loss follows a schedule of its calls, which no checkpoint holds."""

    def __init__(self, counts=False):
        self.counts, self.calls = counts, itertools.count()

    def model(self):
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()

    def dataset(self, split):
        return Points()

    def tensor_plan(self, model):
        return {"0": "colwise", "2": "rowwise"}

    def loss(self, model, batch):
        x, y = batch
        loss = ((model(x).squeeze(-1) - y) ** 2).sum()
        return loss * (1 + next(self.calls) / 10) if self.counts else loss
'''


def document(folder: Path, tensor: int | None = None, **args: Any) -> dict[str, Any]:
    (folder / "fit.py").write_text(TASK)
    return {
        "name": "fit",
        "kind": "train",
        "code": {"path": str(folder)},
        "resources": {"gpus": tensor or 1},
        "train": {
            "task": "fit.py:Fit",
            "task_args": args,
            "batch": {"size": 8, "micro_size": 8},
            "steps": 400,
            "parallel": {"tensor": tensor},
        },
    }


@pytest.fixture
def verify(
    warm: ForkServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, Any]]:
    """Run the module with forked launchers, as an agent does; return its exit code and document."""
    monkeypatch.setattr(
        LocalRuns, "launch", lambda _, folder: Attempt(folder, warm).start().outcome()
    )

    def run(layouts: str, **args: Any) -> tuple[int, Any]:
        file = tmp_path / "job.json"
        file.write_text(json.dumps(document(tmp_path, **args)))
        code = command.main([str(file), "--layouts", layouts, "--steps", "6", "-o", "json"])
        return code, json.loads(capsys.readouterr().out)

    return run


def test_a_right_task_agrees_in_every_layout_and_after_a_kill(
    verify: Callable[..., tuple[int, Any]],
) -> None:
    code, found = verify("1x8,2x2")
    assert (code, found["agrees"], found["reference"]) == (0, True, "1x8")
    twin, other, killed, moved = [run["difference"] for run in found["runs"][1:]]
    assert twin["loss"] > 0
    assert other["weights"] < 1e-14
    # The same layout, killed and resumed, is the same to the last bit.
    assert killed == {"loss": 0.0, "gradient": 0.0, "weights": 0.0}
    assert moved["weights"] < 1e-14
    assert all(limit < 1e-11 for limit in found["tolerance"].values())


def test_a_cut_model_agrees_with_a_whole_one_and_after_a_kill(
    verify: Callable[..., tuple[int, Any]],
) -> None:
    code, found = verify("2x8,4x2,1x8", tensor=2)
    assert (code, found["agrees"], found["reference"]) == (0, True, "2x8 tensor 2")
    assert [run["layout"] for run in found["runs"]] == [
        f"{each} tensor 2" if each != "1x8" else each
        for each in ("2x8", "2x8", "4x2", "1x8", "2x8", "4x2")
    ]
    _, copies, whole, killed, moved = [run["difference"] for run in found["runs"][1:]]
    assert killed == {"loss": 0.0, "gradient": 0.0, "weights": 0.0}
    assert max(each["weights"] for each in (copies, whole, moved)) < 1e-14


def test_a_schedule_of_calls_is_found_by_another_number_of_micro_batches(
    verify: Callable[..., tuple[int, Any]],
) -> None:
    code, found = verify("1x8,2x2", counts=True)
    assert code == 1
    assert found["sentences"][0].startswith("2x2: differs from step 1 on: loss ")
    assert any("it depends on previous calls" in sentence for sentence in found["sentences"])


def test_state_that_no_checkpoint_holds_is_found_by_the_kill(
    verify: Callable[..., tuple[int, Any]],
) -> None:
    # One micro-batch per rank and step in both layouts: these agree.
    code, found = verify("1x8,2x4", counts=True)
    assert code == 1
    verdicts = [run["verdict"] for run in found["runs"]]
    assert verdicts[2:] == ["within", "differs at step 4", "differs at step 4"]


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.drill), signal.SIGTERM]
)
def test_an_interrupt_leaves_no_process_and_no_file(tmp_path: Path, number: signal.Signals) -> None:
    spec = document(tmp_path)
    (tmp_path / "job.json").write_text(json.dumps(spec))
    folders = tmp_path / "folders"
    folders.mkdir()
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "lockstep.engine.verify", str(tmp_path / "job.json")),
            *("--steps", "1000000"),
        ],
        env={**os.environ, "TMPDIR": str(folders)},
        cwd=Path(__file__).parents[3],
        stderr=subprocess.DEVNULL,
    ) as process:
        ranks = until(
            lambda: list(folders.glob("lockstep-verify-*/01/ranks.json")), seconds=60, what="ranks"
        )
        pid = json.loads(ranks[0].read_text())["ranks"][0]["pid"]
        process.send_signal(number)
        assert process.wait(60) == 130
    assert not alive(pid)
    assert list(folders.glob("lockstep-verify-*")) == []


@pytest.mark.parametrize(
    ("precision", "dtype", "unit"),
    [
        ("fp32", torch.float64, 2.0**-52),
        ("fp32", torch.float32, 2.0**-23),
        ("bf16", torch.float32, 2.0**-7),
    ],
)
def test_the_second_run_starts_one_rounding_unit_away(
    tmp_path: Path, precision: str, dtype: torch.dtype, unit: float
) -> None:
    model = nn.Linear(16, 16).to(dtype)
    before = model.weight.detach().clone()
    train = read_spec(document(tmp_path)).train
    assert train is not None
    start_one_ulp_away(model, train.model_copy(update={"precision": precision}), tf32=False)
    moved = (model.weight.detach() - before) / before.abs()
    assert (moved > 0).all()
    assert (moved <= 2 * unit).all()
    assert (moved >= unit / 2).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--layouts", "1x8"], "expected at least two different layouts"),
        (["--steps", "3"], "expected at least 4"),
        (["--layouts", "1x8,99x1"], "99 ranks are more than the 64 samples in a batch"),
    ],
)
def test_wrong_use_of_the_module_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        command.main(["examples/gpt.yaml", *words])
    assert left.value.code == 2
    assert message in capsys.readouterr().err
