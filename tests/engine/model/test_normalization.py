"""BatchNorm is declared, and its statistics are the same on all ranks wherever they are used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from lockstep.engine.checkpoints import checkpoint
from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.builtin import BUILT_IN
from tests.engine import cases, mutants
from tests.engine.model import normalization_cases
from tests.engine.spool import records
from tests.engine.toy import Toy, ToyTask
from tests.harness.ranks import Pool

pytestmark = pytest.mark.contract(24)

TOY = Toy(items=33, batch_norm=True)
OPTIONS: dict[str, Any] = {
    "batch": {"size": 14, "micro_size": 2},
    "optimizer": {"name": "sgd", "lr": 0.05},
    "steps": 6,
}
OFTEN = OPTIONS | {"eval": {"every_steps": 2}, "checkpoint": {"every_steps": 3, "keep_last": 9}}
STATISTICS = ("norm.running_mean", "norm.running_var")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_statistics_become_the_mean_of_the_ranks(pool: Pool, dtype: torch.dtype) -> None:
    ranks = pool.run(normalization_cases.averaged, dtype, world_size=3)
    for name, after in ranks[0][1].items():
        before = [states[0][name] for states in ranks]
        if "running" in name:
            mean = torch.stack([value.double() for value in before]).mean(0).to(dtype)
            assert torch.allclose(after, mean, rtol=torch.finfo(dtype).eps)
        elif name.endswith("num_batches_tracked"):
            assert int(after) == max(int(value) for value in before)
        else:
            assert torch.equal(after, before[0])
    for states in ranks:
        for name in states[1].keys() - {"other"}:
            assert torch.equal(states[1][name], ranks[0][1][name]), "equal on all ranks"
            assert torch.equal(states[2][name], states[1][name]), "and their own mean"
        assert float(states[1]["other"]) == float(states[0]["other"]), (
            "another buffer is left alone"
        )


def test_statistics_of_a_run_are_the_mean_over_its_ranks(pool: Pool, tmp_path: Path) -> None:
    found = [
        one.weights for one in pool.run(cases.train, TOY, OFTEN, tmp_path / "often", world_size=3)
    ]
    own = [
        one.weights
        for one in pool.run(
            cases.train,
            TOY,
            OPTIONS,
            tmp_path / "own",
            mutants.statistics_of_each_rank,
            world_size=3,
        )
    ]
    for name in found[0]:
        if name in STATISTICS:
            assert not torch.equal(own[0][name], own[1][name]), "ranks see different samples"
            expected = torch.stack([weights[name] for weights in own]).mean(0)
            # The number of averages in between does not matter: training does not read them.
            assert torch.allclose(found[0][name], expected, rtol=1e-12, atol=0)
        elif not name.endswith("num_batches_tracked"):
            assert torch.equal(found[0][name], own[0][name])
        assert all(torch.equal(weights[name], found[0][name]) for weights in found)
    saved = checkpoint.load(tmp_path / "often/checkpoints/step-00000006")["model"]
    assert all(torch.equal(saved[name], value) for name, value in found[0].items())


def test_an_evaluation_uses_the_mean(pool: Pool, tmp_path: Path) -> None:
    pool.run(cases.train, TOY, OFTEN, tmp_path / "often", world_size=3)
    pool.run(
        cases.train, TOY, OFTEN, tmp_path / "own", mutants.statistics_of_each_rank, world_size=3
    )
    found, own = records(tmp_path / "often"), records(tmp_path / "own")
    assert found[2]["eval/loss"] != own[2]["eval/loss"]
    assert found[2]["train/loss"] == own[2]["train/loss"]


def test_batch_norm_that_is_not_declared_is_refused(tmp_path: Path) -> None:
    plan, spec = cases.planned(OPTIONS, 1)
    with pytest.raises(
        EngineError,
        match=r"through BatchNorm \(norm\): use GroupNorm, or declare batch_dependent = True",
    ):
        Trainer(spec, plan, ToyTask(TOY), Ranks(), tmp_path).run()


def test_the_built_in_tasks_have_no_batch_norm() -> None:
    for name, args in (("image_classification", {}), ("causal_lm", {"layers": 1})):
        assert not any(
            isinstance(module, _BatchNorm) for module in BUILT_IN[name](**args).model().modules()
        )


class Recording(ToyTask):
    """Records the model of each evaluation."""

    def __init__(self) -> None:
        super().__init__(Toy())
        self.given: list[tuple[bool, bool]] = []

    def evaluate(self, model: nn.Module, batch: Any) -> Any:
        self.given.append((model is self.built, model.training))
        return super().evaluate(model, batch)


def test_an_evaluation_runs_the_model_without_its_wrapper(tmp_path: Path) -> None:
    task = Recording()
    plan, spec = cases.planned(OPTIONS | {"eval": {"every_steps": 2}}, 1)
    Trainer(spec, plan, task, Ranks(), tmp_path).run()
    assert set(task.given) == {(True, False)}
    assert task.built.training
