"""Optimizer: the kernel of the update, its initial state, and a shortage of memory."""

from __future__ import annotations

import copy
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from lockstep.domain.spec.job import Strategy as Options
from lockstep.domain.spec.train import Train
from lockstep.engine.model.objective import Objective
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.step.optimizer import Optimizer, clip
from lockstep.engine.strategies.ddp import DDP
from tests.engine.toy import Net, Toy, ToyTask

ADAMW = {"name": "adamw", "lr": 1e-2, "weight_decay": 0.1}
SGD = {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3}
NESTEROV = SGD | {"nesterov": True}
PLAIN = {"name": "sgd", "lr": 0.05}
ALL = pytest.mark.parametrize(
    "settings", [ADAMW, SGD, NESTEROV, PLAIN], ids=["adamw", "momentum", "nesterov", "plain"]
)


def train(settings: dict[str, Any], **more: Any) -> Train:
    document = {
        "task": "causal_lm",
        "batch": {"size": 4, "micro_size": 4},
        "steps": 100,
        "optimizer": settings,
        **more,
    }
    return Train.model_validate(document)


def built(settings: dict[str, Any], toy: Toy | None = None, **more: Any) -> tuple[Optimizer, Net]:
    task = ToyTask(toy or Toy())
    model = task.model()
    strategy = DDP(Objective(task, model), Ranks(), Options())
    return Optimizer(train(settings, **more), task, strategy, steps=100), task.built


def gradients(model: nn.Module, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, dtype=torch.float64, generator=generator).to(
            parameter.dtype
        )


def run(optimizer: Optimizer, model: nn.Module, steps: int, first: int = 0) -> None:
    for step in range(first, first + steps):
        gradients(model, step)
        optimizer.update(step, torch.ones(1, dtype=torch.float64), optimizer.norm(1.0))


@ALL
@pytest.mark.parametrize("double", [True, False], ids=["float64", "float32"])
def test_weights_are_moved_by_the_fused_kernel(settings: dict[str, Any], *, double: bool) -> None:
    optimizer, _ = built(settings, Toy(double=double))
    assert all(group["fused"] for group in optimizer.inner.param_groups)


@ALL
@pytest.mark.parametrize("double", [True, False], ids=["float64", "float32"])
def test_state_allocated_at_the_start_gives_the_same_bits(
    settings: dict[str, Any], *, double: bool
) -> None:
    toy = Toy(double=double)
    early, one = built(settings, toy)
    with mock.patch("lockstep.engine.step.kernels.allocate"):
        late, other = built(settings, toy)
    assert not late.inner.state
    run(early, one, 5)
    run(late, other, 5)
    for name, value in other.state_dict().items():
        assert torch.equal(value, one.state_dict()[name]), name
    states = [optimizer.inner.state_dict()["state"] for optimizer in (early, late)]
    assert states[0].keys() == states[1].keys()
    for index, state in states[1].items():
        assert state.keys() == states[0][index].keys()
        assert all(
            torch.equal(value, states[0][index][name])
            for name, value in state.items()
            if value is not None
        )


def test_all_state_is_allocated_before_the_first_step() -> None:
    optimizer, model = built(ADAMW)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    kept = [
        value for state in optimizer.inner.state.values() for value in state.values() if value.ndim
    ]
    assert sum(value.numel() for value in kept) == 2 * parameters
    run(optimizer, model, 1)
    after = [
        value for state in optimizer.inner.state.values() for value in state.values() if value.ndim
    ]
    assert [value.data_ptr() for value in after] == [value.data_ptr() for value in kept]


@ALL
def test_the_kernel_is_chosen_by_the_run_instead_of_the_checkpoint(
    settings: dict[str, Any],
) -> None:
    there, model = built(settings)
    run(there, model, 2)
    state = copy.deepcopy(there.inner.state_dict())
    for group in state["param_groups"]:
        group.update(fused=None, foreach=True)
    here, other = built(settings)
    other.load_state_dict(model.state_dict())
    here.inner.load_state_dict(state)
    assert all(group["fused"] and not group["foreach"] for group in here.inner.param_groups)
    run(there, model, 3, first=2)
    run(here, other, 3, first=2)
    assert all(
        torch.equal(value, other.state_dict()[name]) for name, value in model.state_dict().items()
    )


@pytest.mark.parametrize("limit", [0.5, 1e6])
@pytest.mark.parametrize("dtypes", ["one", "two"])
def test_norm_and_clipping_equal_those_of_torch(limit: float, dtypes: str) -> None:
    optimizer, model = built(PLAIN, clip_grad_norm=limit)
    if dtypes == "two":
        model.out.float()
    gradients(model, 1)
    parameters = list(model.parameters())
    norm = optimizer.norm(1.0).whole
    grads = [parameter.grad.clone() for parameter in parameters if parameter.grad is not None]
    assert float(norm) == pytest.approx(float(torch.nn.utils.get_total_norm(grads)), rel=1e-6)
    clip(parameters, limit, norm)
    for parameter, grad in zip(parameters, grads, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, grad * min(1.0, limit / (float(norm) + 1e-6)))


def test_a_gradient_below_the_limit_is_not_touched() -> None:
    optimizer, model = built(PLAIN, clip_grad_norm=1e6)
    gradients(model, 1)
    with mock.patch("torch._foreach_mul_") as multiply:
        optimizer.update(0, torch.ones(1), optimizer.norm(1.0))
    multiply.assert_not_called()


@pytest.mark.contract(17)
@ALL
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("bad", ["loss", "norm"])
def test_the_fused_kernel_skips_a_step_on_the_device(
    settings: dict[str, Any], bad: str, *, first: bool
) -> None:
    optimizer, model = built(settings)
    optimizer._masks = True  # As on CUDA.
    if not first:
        run(optimizer, model, 2)
    before = copy.deepcopy((model.state_dict(), optimizer.inner.state_dict()["state"]))
    gradients(model, 7)
    sums = torch.tensor([1.0, torch.nan if bad == "loss" else 1.0], dtype=torch.float64)
    if bad == "norm":
        assert model.scale.grad is not None
        model.scale.grad[0] = torch.inf
    optimizer.update(2, sums, optimizer.norm(1.0))
    after = model.state_dict(), optimizer.inner.state_dict()["state"]
    assert all(torch.equal(value, after[0][name]) for name, value in before[0].items())
    assert all(
        torch.equal(value, after[1][index][name])
        for index in before[1]
        for name, value in before[1][index].items()
    )
    run(optimizer, model, 1, first=3)
    assert not all(
        torch.equal(value, model.state_dict()[name]) for name, value in before[0].items()
    )
    assert all(value.isfinite().all() for value in model.state_dict().values())


def no_memory(*_: Any, **__: Any) -> Tensor:
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_state_that_does_not_fit_ends_the_run_with_advice() -> None:
    with (
        mock.patch("torch.zeros_like", no_memory),
        pytest.raises(
            EngineError, match=r"state of the optimizer, adamw, does not fit.*zero1.*sgd"
        ) as caught,
    ):
        built(ADAMW)
    assert caught.value.reason == "out_of_memory"


def test_out_of_memory_in_the_update_names_the_step() -> None:
    optimizer, model = built(ADAMW)
    gradients(model, 0)
    with (
        mock.patch.object(optimizer.inner, "step", no_memory),
        pytest.raises(
            EngineError, match=r"step 5 ran out of memory in the optimizer.*last checkpoint"
        ) as caught,
    ):
        optimizer.update(4, torch.ones(1), optimizer.norm(1.0))
    assert caught.value.reason == "out_of_memory"


def test_complex_parameters_use_the_kernel_that_torch_chooses() -> None:
    class Turns(ToyTask):
        def model(self) -> nn.Module:
            module = nn.Module()
            module.turn = nn.Parameter(torch.ones(3, dtype=torch.complex64))
            return module

    task = Turns(Toy())
    strategy = DDP(Objective(task, task.model()), Ranks(), Options())
    optimizer = Optimizer(train(ADAMW), task, strategy, steps=100)
    assert not any(group["fused"] for group in optimizer.inner.param_groups)
    (turn,) = strategy.model.parameters()
    turn.grad = torch.ones_like(turn)
    optimizer.update(0, torch.ones(1), optimizer.norm(1.0))
    assert not torch.equal(turn.detach(), torch.ones_like(turn))


def test_a_task_that_changes_its_groups_later_changes_nothing() -> None:
    class Keeping(ToyTask):
        def param_groups(self, model: nn.Module) -> list[dict[str, Any]]:
            self.groups = super().param_groups(model)
            return self.groups

    task = Keeping(Toy())
    optimizer = Optimizer(
        train(ADAMW), task, DDP(Objective(task, task.model()), Ranks(), Options()), steps=1
    )
    before = [group["weight_decay"] for group in optimizer.inner.param_groups]
    for group in task.groups:
        group["weight_decay"] = 0.7
    assert [group["weight_decay"] for group in optimizer.inner.param_groups] == before
