"""Optimizers by the path of their class: same numbers as a plain loop, or refused by name."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.domain.spec.optimizer import NAMES, OPTIMIZERS, OptimizerClass
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.step import kernels
from lockstep.engine.step.independence import check_independence
from tests.engine import cases
from tests.engine.reference import batches_of, distance, reference
from tests.engine.spool import events
from tests.engine.toy import Toy
from tests.harness.ranks import Pool

STEPS, SIZE, MICRO = 6, 11, 2


def options(name: str, **more: Any) -> dict[str, Any]:
    return {
        "batch": {"size": SIZE, "micro_size": MICRO},
        "steps": STEPS,
        "optimizer": {"name": name, "lr": 0.01},
        "schedule": {"name": "cosine", "warmup_steps": 2},
        "clip_grad_norm": 0.5,
        "checkpoint": {"every_steps": 4, "keep_last": 10},
        **more,
    }


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("name", ["Adafactor", "NAdam", "RMSprop"])
def test_weights_are_the_plain_loops_also_after_a_resume(
    pool: Pool, tmp_path: Path, name: str, world_size: int
) -> None:
    settings = options(f"torch.optim.{name}")
    seen = pool.run(cases.train, Toy(), settings, tmp_path / "whole", world_size=world_size)
    batches = batches_of([one.micro_batches for one in seen], [SIZE] * STEPS, MICRO)
    expected = reference(Toy(), settings, batches)
    for one in seen:
        assert distance(one.weights, expected.weights) <= 1e-12
    for others in {world_size, 2}:
        again = tmp_path / f"again{others}"
        shutil.copytree(tmp_path / "whole/checkpoints/step-00000004", again / "resume")
        resumed = pool.run(cases.train, Toy(), settings, again, world_size=others)
        assert distance(resumed[0].weights, expected.weights) <= 1e-12
        assert events(again, "resumed")[0]["exact"] is (others == world_size)


@pytest.mark.parametrize(
    ("name", "strategy", "refused"),
    [
        ("NAdam", "zero1", False),
        ("NAdam", "fsdp", False),
        ("Adafactor", "zero1", False),
        ("Adafactor", "fsdp", True),
    ],
)
def test_a_strategy_divides_the_work_or_refuses_the_class(
    pool: Pool, tmp_path: Path, name: str, strategy: str, refused: bool
) -> None:
    settings = options(f"torch.optim.{name}", strategy={"name": strategy})
    if refused:
        message = rf"{name} cannot be divided between ranks.* use strategy ddp or zero1"
        with pytest.raises(EngineError, match=message):
            pool.run(cases.train, Toy(), settings, tmp_path, world_size=2)
        return
    seen = pool.run(cases.train, Toy(), settings, tmp_path / "whole", world_size=2)
    batches = batches_of([one.micro_batches for one in seen], [SIZE] * STEPS, MICRO)
    assert distance(seen[0].weights, reference(Toy(), settings, batches).weights) <= 1e-12
    shutil.copytree(tmp_path / "whole/checkpoints/step-00000004", tmp_path / "again/resume")
    resumed = pool.run(cases.train, Toy(), settings, tmp_path / "again", world_size=2)
    assert distance(resumed[0].weights, seen[0].weights) == 0


class Noisy(torch.optim.SGD):
    """Adds noise to each update, as Langevin dynamics do."""

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        with torch.no_grad():
            for parameter in (p for group in self.param_groups for p in group["params"]):
                parameter.add_(torch.randn_like(parameter) * random.random() * 0.1)


def test_noise_of_an_optimizer_is_that_of_the_step(pool: Pool, tmp_path: Path) -> None:
    settings = options(f"{__name__}.Noisy")
    seen = [
        pool.run(cases.train, Toy(), settings, tmp_path / str(ranks), world_size=ranks)[0]
        for ranks in (1, 2)
    ]
    assert distance(seen[0].weights, seen[1].weights) <= 1e-12
    shutil.copytree(tmp_path / "1/checkpoints/step-00000004", tmp_path / "again/resume")
    again = pool.run(cases.train, Toy(), settings, tmp_path / "again", world_size=1)[0]
    assert distance(again.weights, seen[0].weights) == 0
    assert events(tmp_path / "again", "resumed")[0]["exact"] is True


class KeepsOutside(torch.optim.SGD):
    """Has state that its ``state_dict()`` lacks."""

    calls = 0

    def step(self, closure: Any = None) -> Any:
        self.calls += 1
        for group in self.param_groups:
            group["lr"] = 0.1 / self.calls
        return super().step(closure)


class Coupled(torch.optim.SGD):
    """Scales each update by a norm over all parameters."""

    def step(self, closure: Any = None) -> Any:
        grads = [p.grad for group in self.param_groups for p in group["params"]]
        norm = torch.stack([grad.norm() for grad in grads]).norm()
        torch._foreach_div_(grads, norm)
        return super().step(closure)


class BlockScaled(torch.optim.SGD):
    """Divides blocks of large tensors by their largest value, as 8-bit optimizers do."""

    def step(self, closure: Any = None) -> Any:
        grads = [p.grad for group in self.param_groups for p in group["params"]]
        for block in (
            each for grad in grads if grad.numel() > 4096 for each in grad.view(-1).split(2048)
        ):
            block.div_(block.abs().max())
        return super().step(closure)


class Every10(torch.optim.SGD):
    """Centres each parameter in every tenth update."""

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        for parameter in (p for group in self.param_groups for p in group["params"]):
            state = self.state[parameter]
            state["calls"] = state.get("calls", 0) + 1
            if state["calls"] % 10 == 0:
                parameter.data.sub_(parameter.mean())


class OnlyFloat32(torch.optim.Adagrad):
    """Refuses float64, as kernels of some devices do, and combines rows."""

    def step(self, closure: Any = None) -> Any:
        for parameter in (p for group in self.param_groups for p in group["params"]):
            if parameter.dtype == torch.float64:
                raise TypeError("float64 is not supported")
            parameter.grad.div_(parameter.grad.norm())
        return super().step(closure)


def check(
    name: str,
    needs: str,
    dimensions: tuple[int, ...] = (0, 1, 2, 4),
    dtype: torch.dtype = torch.float64,
) -> None:
    section = OptimizerClass(name=name, lr=1e-9)
    model = [torch.zeros((2,) * count, dtype=dtype) for count in dimensions]
    check_independence(name, lambda groups: kernels.build(section, groups), model, needs)


@pytest.mark.parametrize(
    "name", "ASGD Adadelta Adagrad Adam AdamW Adamax NAdam RAdam RMSprop Rprop SGD".split()
)
def test_elementwise_classes_of_torch_are_accepted(name: str) -> None:
    """Independent elements are the most that a strategy needs: the other needs come before it."""
    check(f"torch.optim.{name}", "elements", dtype=torch.float32)


@pytest.mark.parametrize(
    ("name", "needs", "message"),
    [
        ("torch.optim.Adafactor", "elements", "a row of a parameter depends on the other rows"),
        ("torch.optim.Muon", "elements", "a row of a parameter depends on the other rows"),
        (f"{__name__}.Every10", "elements", "a row of a parameter depends on the other rows"),
        (f"{__name__}.BlockScaled", "elements", "a row of a parameter depends on the other rows"),
        (f"{__name__}.Coupled", "parameters", "a parameter depends on the other parameters"),
        (f"{__name__}.KeepsOutside", "", r"other numbers after a restart.*state_dict\(\) lacks"),
        ("torch.optim.SparseAdam", "", "does not support dense gradients"),
        ("torch.optim.LBFGS", "", "computes the loss several times in a step"),
        ("torch.optim.Nadam", "", r"torch\.optim has no Nadam: did you mean torch\.optim\.NAdam"),
        ("torch.nn.Linear", "", r"is not a subclass of torch\.optim\.Optimizer"),
        ("no_such_module.Sgd", "", "the import of no_such_module failed: ModuleNotFoundError"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_other_classes_are_refused_with_the_reason(
    name: str, needs: str, message: str, dtype: torch.dtype
) -> None:
    with pytest.raises(EngineError, match=message):
        check(name, needs, (2,), dtype)


def test_a_class_that_fails_in_float64_is_tried_in_the_format_of_the_model() -> None:
    name = f"{__name__}.OnlyFloat32"
    check(name, "parameters", dtype=torch.float32)
    with pytest.raises(EngineError, match="a row of a parameter depends on the other rows"):
        check(name, "elements", dtype=torch.float32)
    with pytest.raises(EngineError, match="float64 is not supported"):
        check(name, "", dtype=torch.float64)


def test_refused_arguments_are_named() -> None:
    section = OptimizerClass(name="torch.optim.NAdam", args={"beta": 1})
    groups = [{"params": [torch.nn.Parameter(torch.ones(2))]}]
    with pytest.raises(EngineError, match=r"unexpected keyword argument 'beta'.*optimizer\.args"):
        kernels.build(section, groups)


def test_each_kind_of_the_spec_has_a_kernel() -> None:
    assert set(kernels.KERNELS) == set(OPTIMIZERS.values())
    assert NAMES == ("adamw", "sgd")
