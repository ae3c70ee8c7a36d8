"""Verification by real runs: a right task agrees, and two wrong ones are named.

Each run is an attempt under the real launcher, and the kill is a real SIGKILL of its ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lockstep.domain.spec.reading import read_spec
from lockstep.domain.verify import report
from lockstep.domain.verify.layouts import read_layouts
from lockstep.domain.verify.session import Verification
from lockstep.engine.verify import __main__ as command
from lockstep.engine.verify.hooks import start_one_ulp_away
from lockstep.engine.verify.local import LocalRuns
from lockstep.worker.launch.fork_client import ForkServer
from tests.engine.launcher.attempts import Attempt

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

    def loss(self, model, batch):
        x, y = batch
        loss = ((model(x).squeeze(-1) - y) ** 2).sum()
        return loss * (1 + next(self.calls) / 10) if self.counts else loss
'''


def document(folder: Path, **args: Any) -> dict[str, Any]:
    (folder / "fit.py").write_text(TASK)
    return {
        "name": "fit",
        "kind": "train",
        "code": {"path": str(folder)},
        "train": {"task": "fit.py:Fit", "task_args": args, "batch": {"size": 8}, "steps": 400},
    }


class WarmRuns(LocalRuns):
    """Launchers are forked from a process that has imported torch, as an agent's are."""

    warm: ForkServer

    def launch(self, folder: Path) -> None:
        Attempt(folder, self.warm).start().outcome()


@pytest.fixture
def verify(warm: ForkServer, tmp_path: Path) -> Callable[..., list[tuple[str, ...]]]:
    def run(layouts: str, **args: Any) -> list[tuple[str, ...]]:
        code, folder = tmp_path / "code", tmp_path / "attempts"
        code.mkdir()
        folder.mkdir()
        done = Verification(document(code, **args), read_layouts(layouts), steps=6)
        runs = WarmRuns(folder, code, cuda=False, say=lambda _: None)
        runs.warm = warm
        done.perform(runs)
        return report.table(done)

    return run


def test_a_right_task_agrees_in_every_layout_and_after_a_kill(
    verify: Callable[..., list[tuple[str, ...]]],
) -> None:
    rows = verify("1x8,2x2")
    assert [row[-1] for row in rows] == [
        "reference",
        "sets the tolerance",
        "within",
        "within",
        "within",
        "",
    ]
    assert rows[1][1] != "0"
    # The same layout, killed and resumed, is the same to the last bit.
    assert rows[3] == ("1x8, killed after step 4 and resumed", "0", "0", "0", "within")
    assert all(float(limit) < 1e-10 for limit in rows[-1][1:-1])


def test_a_schedule_of_calls_is_found_by_another_number_of_micro_batches(
    verify: Callable[..., list[tuple[str, ...]]],
) -> None:
    other = verify("1x8,2x2", counts=True)[2]
    assert (other[0], other[-1]) == ("2x2", "differs at step 1")


def test_state_that_no_checkpoint_holds_is_found_by_the_kill(
    verify: Callable[..., list[tuple[str, ...]]],
) -> None:
    # One micro-batch per rank and step in both layouts: these agree.
    verdicts = [row[-1] for row in verify("1x8,2x4", counts=True)]
    assert verdicts[2] == "within"
    assert verdicts[3:5] == ["differs at step 4", "differs at step 4"]


@pytest.mark.parametrize(
    ("precision", "dtype", "unit"),
    [
        ("fp32", torch.float64, 2.0**-52),
        ("fp32", torch.float32, 2.0**-23),
        ("bf16", torch.float32, 2.0**-7),
    ],
)
def test_the_twin_starts_one_unit_of_the_coarsest_format_away(
    tmp_path: Path, precision: str, dtype: torch.dtype, unit: float
) -> None:
    model = nn.Linear(16, 16).to(dtype)
    before = model.weight.detach().clone()
    train = read_spec(document(tmp_path)).train
    assert train is not None
    start_one_ulp_away(model, train.model_copy(update={"precision": precision}))
    moved = (model.weight.detach() - before) / before.abs()
    assert (moved > 0).all()
    assert (moved <= 2 * unit).all()
    assert (moved >= unit / 2).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--layouts", "1x8"], "expected at least two different layouts"),
        (["--steps", "3"], "expected at least 4"),
    ],
)
def test_wrong_use_of_the_module_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        command.main(["examples/gpt.yaml", *words])
    assert left.value.code == 2
    assert message in capsys.readouterr().err
