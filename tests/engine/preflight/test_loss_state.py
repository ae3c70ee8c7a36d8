"""State that a loss changes and reads is named before the first step, even if its effect is
late."""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lockstep.engine.preflight import check_size, fast_forward, trial_task
from lockstep.engine.task.interface import Task
from tests.engine.preflight import additive_tasks, repeatable_cases
from tests.engine.preflight.coupled_tasks import Late, Wide
from tests.engine.preflight.loss_tasks import CLASSES
from tests.engine.preflight.test_couplings import by_turns, checked


class LateInADict(Wide):
    def __init__(self) -> None:
        self.state = {"calls": 0, "name": "warm-up"}

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        self.state["calls"] += 1
        return each.sum() * (2 if self.state["calls"] > 500 else 1)


class LateIn(Wide):
    """Counts in any value, which ``tick`` moves or replaces and ``number`` reads."""

    def __init__(self, value: Any, tick: Callable[[Any], Any], number: Callable[[Any], float]):
        self.value, self.moves = value, (tick, number)

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        tick, number = self.moves
        self.value = tick(self.value)
        return each.sum() * (2 if number(self.value) > 500 else 1)


def appended(values: Any) -> Any:
    values.append(0.5)
    return values


def counted(values: Any) -> Any:
    values["calls"] = values["calls"] + 1
    return values


def first(values: Any) -> float:
    return float(values[0])


LATE: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], float]]] = {
    "a NumPy number": (np.int64(0), lambda value: value + 1, float),
    "a NumPy array": (np.zeros(2), lambda value: value + 1, first),
    "an array without dimensions": (np.zeros(()), lambda value: np.add(value, 1, out=value), float),
    "a counter for each class": (torch.zeros(3), lambda value: value.add_(1), first),
    "a list of numbers": ([0, 1.0], lambda value: [value[0] + 1, 1.0], first),
    "a tuple of numbers": ((0, 1.0), lambda value: (value[0] + 1, 1.0), first),
    "the length of a list": ([0.5], appended, len),
    "a window that fills": (deque([0.5], maxlen=501), appended, len),
    "a tensor in a dict": (
        {"calls": torch.zeros(())},
        counted,
        lambda value: float(value["calls"]),
    ),
}


class LateInABuffer(Wide):
    """The counter is a buffer that no checkpoint holds."""

    class Net(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, CLASSES)
            self.register_buffer("calls", torch.zeros(()), persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(x) * (self.calls / 1000).clamp(1, 2)

    def model(self) -> nn.Module:
        return self.Net()


class EndOfASchedule(Wide):
    """Reads a list by the number of its calls, which ends."""

    def __init__(self) -> None:
        self.calls, self.factors = 0, tuple([1.0] * 60)

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        self.calls += 1
        return each.sum() * self.factors[self.calls]


class Averaged(Wide):
    """Keeps an average from its first call on, as an attribute of the model."""

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        mean = out.detach().mean(0)
        if not hasattr(self, "mean"):
            self.mean = mean
        total = (out - self.mean).square().sum()
        self.mean = 0.9 * self.mean + 0.1 * mean
        return total


class Scheduled(Wide):
    """The counter belongs to an object of the task."""

    class Beta:
        calls = 0

        def __call__(self) -> float:
            self.calls += 1
            return min(1.0, max(0.5, self.calls / 50_000))

    def __init__(self) -> None:
        self.beta = self.Beta()
        self.beta.calls = 0

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        return each.sum() * self.beta()


class Hanging(Wide):
    """Waits without an end from its call 20 on."""

    calls = 0

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        self.calls += 1
        while self.calls >= 20:
            time.sleep(0.1)
        return each.sum()


READ: list[tuple[Callable[[], Task], str]] = [
    (partial(Late, 8), "task.calls, read after 10 calls"),
    (partial(Late, 30), "task.calls, read after 100 calls"),
    (partial(Late, 900_000), "task.calls, read after 1,000,000 calls"),
    (LateInADict, "task.state, read after 1,000 calls"),
    (LateInABuffer, "calls, read after 1,000 calls"),
    (EndOfASchedule, "task.calls, read after 100 calls"),
    (Averaged, "task.mean"),
    (Scheduled, "task.beta.calls, read after 100,000 calls"),
    (additive_tasks.Teacher, "task.teacher.weight"),
    # Not in place: its vectors move by less than the rounding of float32.
    (additive_tasks.Spectral, "0.parametrizations.weight.0._v"),
    (repeatable_cases.OwnNoise, "task.rng"),
]


@pytest.mark.parametrize(
    ("task", "named", "free"), by_turns(READ), ids=[named for _, named in READ]
)
def test_state_that_the_loss_reads_is_named(
    task: Callable[[], Task], named: str, free: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_size, "_FREE", free)
    assert [str(each) for each in checked(task()).effects.read] == [named]


@pytest.mark.parametrize("kind", LATE)
def test_a_late_effect_of_any_kind_of_number_is_named(kind: str) -> None:
    value, tick, number = LATE[kind]
    (found,) = checked(LateIn(copy.deepcopy(value), tick, number)).effects.read
    assert (found.name.partition("[")[0], found.calls) == ("task.value", 1_000)


@pytest.mark.parametrize(
    "task",
    [
        additive_tasks.LoggingAndCounting,
        additive_tasks.NormInEval,
        additive_tasks.Encoder,
        repeatable_cases.Logging,
        repeatable_cases.Caching,
        repeatable_cases.NormedImages,
    ],
)
def test_state_that_is_not_read_has_no_warning(task: type[Task]) -> None:
    assert checked(task()).effects.read == ()


@pytest.mark.parametrize("task", [partial(Late, 30), Averaged, LateInABuffer])
def test_the_fast_forward_leaves_no_trace(
    task: Callable[[], Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_size, "_FREE", 0.0)
    made = task()
    built = made.model()
    made.model = lambda: built  # type: ignore[method-assign]
    before = {name: value.clone() for name, value in built.named_parameters()}
    attributes = {name: value for name, value in vars(made).items() if name != "model"}
    checked(made)
    assert {name: value for name, value in vars(made).items() if name != "model"} == attributes
    assert all(torch.equal(value, before[name]) for name, value in built.named_parameters())
    assert all(float(buffer) == 0 for buffer in built.buffers())


def test_late_state_is_a_warning_of_the_run(tmp_path: Path) -> None:
    class LateLine(repeatable_cases.Line):
        calls = 0

        def loss(self, model: nn.Module, batch: Any) -> Any:
            self.calls = self.calls + 1
            return super().loss(model, batch) * (1 if self.calls < 50 else 2)

    task = LateLine()
    task.calls = 0
    (warning,) = repeatable_cases.warnings_of(task, tmp_path)
    assert warning.startswith(
        "loss() reads state that calls of the task change (task.calls, read after 100 calls): "
    )


def test_a_large_frozen_tensor_that_changes_in_place_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(check_size, "_FREE", 0.0)
    monkeypatch.setattr(trial_task, "WATCHED_ABOVE", 3)

    class Drifting(additive_tasks.LoRA):
        def loss(self, model: Any, batch: Any) -> Any:
            with torch.no_grad():
                model.base.weight.add_(0.0 if not model.training else 1e-3)
            return super().loss(model, batch).detach() * 0 + model.a.sum() * len(batch[0])

    (warning,) = checked(Drifting()).warnings
    assert warning.startswith("loss() changes base.weight, and the check")


def test_a_call_that_does_not_end_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_forward, "SECONDS_MAX", 0.2)
    assert [str(each) for each in checked(Hanging()).effects.read] == [
        "task.calls, read after 100 calls"
    ]


class FirstValues(Wide):
    """Subtracts the mean of its first micro-batch, or what does not depend on it."""

    mean: Any = None

    def __init__(self, of_samples: bool, buffer: bool = False):
        self.of_samples, self.buffer = of_samples, buffer

    def model(self) -> nn.Module:
        model = super().model()
        model.register_buffer("mean", None)
        return model

    def loss(self, model: Any, batch: Any) -> Any:
        holder = model if self.buffer else self
        if holder.mean is None:
            holder.mean = batch[0].mean(0) if self.of_samples else torch.ones(4).to(batch[0])
        return nn.functional.cross_entropy(model(batch[0] - holder.mean), batch[1], reduction="sum")


@pytest.mark.parametrize("buffer", [False, True])
def test_what_the_first_call_takes_from_its_samples_is_named(buffer: bool) -> None:
    (warning,) = checked(FirstValues(True, buffer)).warnings_beside(())
    name = "mean" if buffer else "task.mean"
    assert warning.startswith(
        f"loss() reads values that its first call takes from the samples ({name}): "
    )
    assert checked(FirstValues(False, buffer)).warnings_beside(()) == []


class Steps(Wide):
    """Counts in penalty(), which runs once per step, or in another method."""

    def __init__(self, method: str):
        self.method, self.calls = method, 0

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        self.calls += self.method == "loss"
        return each.sum() * (1 + self.calls)

    def penalty(self, model: nn.Module) -> Tensor:
        self.calls += self.method == "penalty"
        return sum(p.square().sum() for p in model.parameters()) / (1 + self.calls)  # type: ignore[return-value]


def test_state_of_the_penalty_moves_with_the_steps() -> None:
    assert checked(Steps("penalty")).effects.read == ()
    assert [str(each) for each in checked(Steps("loss")).effects.read] == ["task.calls"]
