"""An update, a zeroed gradient or a backward during the accumulation of a batch is an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.step.gradient import GradientStep
from tests.engine.cases import planned
from tests.engine.toy import Toy, ToyTask

pytestmark = pytest.mark.contract(21)

OPTIONS: dict[str, Any] = {
    "batch": {"size": 6, "micro_size": 2},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "steps": 3,
}

Act = Callable[[Any, nn.Module, torch.Tensor], None]


class Meddling(ToyTask):
    """Adds an operation of its own to its loss, from the given micro-batch on."""

    batch_dependent = True  # Otherwise the additivity check would refuse it first.

    def __init__(self, act: Act, first: int):
        super().__init__(Toy())
        self.act, self.first, self.ran = act, first, 0

    def loss(self, model: nn.Module, batch: Any) -> Any:
        total = super().loss(model, batch)
        self.ran += 1
        if self.ran > self.first:
            self.act(self, model, total)
        return total


def run(task: ToyTask, folder: Path) -> str:
    plan, spec = planned(OPTIONS, 1)
    with pytest.raises(EngineError) as caught:
        Trainer(spec, plan, task, Ranks(), folder).run()
    assert caught.value.reason == "bad_spec"
    return str(caught.value)


def backward(_: Any, model: nn.Module, total: torch.Tensor) -> None:
    total.backward(retain_graph=True)  # type: ignore[no-untyped-call]


def drop(_: Any, model: nn.Module, total: torch.Tensor) -> None:
    model.zero_grad()


def zero(_: Any, model: nn.Module, total: torch.Tensor) -> None:
    model.zero_grad(set_to_none=False)


def scale(_: Any, model: nn.Module, total: torch.Tensor) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad *= 2


def clamp(_: Any, model: nn.Module, total: torch.Tensor) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.clamp_(-1, 1)


def step(task: Any, model: nn.Module, total: torch.Tensor) -> None:
    torch.optim.SGD(model.parameters(), 0.1).step()


# The warm-up runs the loss twice, and a step has three micro-batches.
@pytest.mark.parametrize("first", [0, 3, 4], ids=["warm-up", "second micro-batch", "third"])
@pytest.mark.parametrize("act", [backward, drop, zero, scale])
def test_a_loss_that_changes_gradients_is_refused(tmp_path: Path, act: Act, first: int) -> None:
    message = run(Meddling(act, first), tmp_path)
    assert (
        "the gradients changed while loss() ran, by backward(), zero_grad() or .grad: only return the loss"
    ) in message


def test_the_additivity_check_refuses_it_too(tmp_path: Path) -> None:
    class Checked(Meddling):
        batch_dependent = False

    for act in (backward, drop, zero):
        assert "the gradients changed while loss() ran" in run(Checked(act, 1), tmp_path)


def test_a_backward_in_the_first_micro_batch_of_a_step_is_refused(tmp_path: Path) -> None:
    assert "the gradients changed while loss() ran" in run(Meddling(backward, 2), tmp_path)


@pytest.mark.parametrize("first", [0, 2, 4])
def test_a_loss_that_changes_parameters_is_refused(tmp_path: Path, first: int) -> None:
    message = run(Meddling(clamp, first), tmp_path)
    assert "which only the engine's optimizer may update" in message


def test_an_optimizer_step_inside_a_batch_is_refused(tmp_path: Path) -> None:
    message = run(Meddling(step, 3), tmp_path)
    assert message.startswith(
        "an optimizer (SGD) of the task updated the model before the batch's gradient was complete"
    )


def test_an_optimizer_step_in_a_hook_of_backward_is_refused(tmp_path: Path) -> None:
    class Fused(ToyTask):
        def model(self) -> nn.Module:
            model = super().model()
            last = next(model.parameters())
            optimizer = torch.optim.SGD([last], 0.1)
            last.register_post_accumulate_grad_hook(lambda _: optimizer.step())
            return model

    assert "an optimizer (SGD) of the task" in run(Fused(Toy()), tmp_path)


def test_an_optimizer_of_another_model_may_step(tmp_path: Path) -> None:
    other = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(other.parameters(), 0.1)

    def separate_gradient(_: Any, model: nn.Module, total: torch.Tensor) -> None:
        other(torch.ones(1, 1)).sum().backward()
        optimizer.step()

    plan, spec = planned(OPTIONS, 1)
    assert (
        Trainer(spec, plan, Meddling(separate_gradient, 2), Ranks(), tmp_path).run().steps_done == 3
    )


def test_gradients_dropped_before_the_update_are_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = ToyTask(Toy())
    accumulate = GradientStep.accumulate

    def dropping(self: GradientStep, *arguments: Any) -> Any:
        result = accumulate(self, *arguments)
        task.built.zero_grad()
        return result

    monkeypatch.setattr(GradientStep, "accumulate", dropping)
    assert "removed or replaced between the last backward and the update" in run(task, tmp_path)


def test_a_batch_inside_of_a_batch_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accumulate = GradientStep.accumulate
    running: list[tuple[Any, ...]] = []

    def noting(self: GradientStep, *arguments: Any) -> Any:
        running.append((self, *arguments))
        return accumulate(self, *arguments)

    monkeypatch.setattr(GradientStep, "accumulate", noting)

    def again(_: Any, model: nn.Module, total: torch.Tensor) -> None:
        accumulate(*running[-1])

    assert "a batch was started inside another one" in run(Meddling(again, 2), tmp_path)


def test_a_gradient_that_is_not_accumulated_is_accepted(tmp_path: Path) -> None:
    class Smooth(ToyTask):
        """With a gradient penalty of each sample."""

        def loss(self, model: nn.Module, batch: Any) -> Any:
            ids, x, y, mask = batch
            x = x.clone().requires_grad_()
            (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            return super().loss(model, (ids, x, y, mask)) + 0.1 * slope.square().sum()

    plan, spec = planned(OPTIONS, 1)
    assert Trainer(spec, plan, Smooth(Toy()), Ranks(), tmp_path).run().steps_done == 3


def test_after_a_failed_run_another_optimizer_may_update_its_model(tmp_path: Path) -> None:
    models: list[nn.Module] = []

    def fail(task: Any, model: nn.Module, total: torch.Tensor) -> None:
        models.append(model)
        step(task, model, total)

    plan, spec = planned(OPTIONS, 1)
    trainer = Trainer(spec, plan, Meddling(fail, 3), Ranks(), tmp_path)
    with pytest.raises(EngineError, match="an optimizer"):
        trainer.run()
    torch.optim.SGD(models[0].parameters(), 0.1).step()
