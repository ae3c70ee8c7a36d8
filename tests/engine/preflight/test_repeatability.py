"""State outside of the engine, by which a run depends on its layout, is named before the first
step."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.model.objective import Objective
from lockstep.engine.model.precision import Precision
from lockstep.engine.preflight.repeatability import check_loss
from lockstep.engine.runtime import randomness
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.state.inventory import Inventory
from lockstep.engine.step.gradient import GradientStep
from lockstep.engine.strategies.ddp import DDP
from lockstep.engine.task.builtin import BUILT_IN
from lockstep.engine.task.interface import Task
from tests.engine.cases import planned
from tests.engine.preflight.repeatable_cases import (
    Caching,
    Clamped,
    ClampedAfterwards,
    CoinToss,
    Counted,
    Counting,
    CountingInTheModel,
    CountingOneTerm,
    CountingOutside,
    Curriculum,
    EngineDropout,
    FilledLater,
    FrozenNorm,
    Given,
    Grown,
    Items,
    Logging,
    NamedAsTheTask,
    NormedImages,
    NumpyGenerator,
    OwnNoise,
    Refined,
    ReseededPerItem,
    RunningMean,
    SeededByTheEngine,
    SpawnedPerItem,
    SpectrallyNormed,
    SystemRandomness,
    Taught,
    TaughtByData,
    TaughtByTheTask,
    Tied,
    TorchGenerator,
    Transformed,
    subset_of,
    warnings_of,
    warnings_on,
)
from tests.engine.spool import events
from tests.engine.start_cases import OPTIONS, Line, train
from tests.harness.ranks import Pool

LAYOUT = "so the run depends on micro_size and on the ranks"


@pytest.mark.parametrize(
    ("items", "named"),
    [
        (NumpyGenerator(), "its own generator (dataset.rng)"),
        (TorchGenerator(), "its own generator (dataset.generator)"),
        (Transformed(), "its own generator (dataset.transforms[1].draws)"),
        (subset_of(NumpyGenerator()), "its own generator (dataset.dataset.rng)"),
        (CoinToss(), "its own generator (dataset.rng)"),
        (SystemRandomness(), "a separate generator, the clock or the system"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_dataset_that_draws_from_its_own_generator_has_a_warning(
    tmp_path: Path, items: Dataset[Any], named: str
) -> None:
    (warning,) = warnings_of(Given(items), tmp_path)
    assert "differs when it is fetched again" in warning
    assert named in warning
    assert LAYOUT in warning


@pytest.mark.parametrize("items", [Items, SeededByTheEngine, ReseededPerItem, SpawnedPerItem])
def test_a_dataset_whose_items_depend_on_their_index_has_none(
    tmp_path: Path, items: type[Dataset[Any]]
) -> None:
    assert warnings_of(Given(items()), tmp_path) == []


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (
            Counting,
            "loss() gives a different value when it is called again with the same batch (it changes task.calls)",
        ),
        (
            CountingInTheModel,
            "loss() gives a different value when it is called again with the same batch (it changes calls)",
        ),
        (CountingOneTerm, "loss() in its term 'kl' gives a different value .*changes task.state"),
        (OwnNoise, "loss() gives a different value .*changes task.rng"),
        (Taught, "loss() changes parameters (teacher.weight, teacher.bias)"),
        (TaughtByData, "loss() changes parameters (teacher.weight, teacher.bias)"),
        (
            TaughtByTheTask,
            "loss() changes parameters (task.teacher.weight, task.teacher.bias)",
        ),
        (RunningMean, "loss() changes buffers (mean)"),
        (
            SpectrallyNormed,
            "loss() changes buffers (0.parametrizations.weight.0._u, "
            "0.parametrizations.weight.0._v)",
        ),
        (Curriculum, "loss() changes the dataset (dataset.dataset.level)"),
        (Refined, "loss() changes the dataset (dataset.dataset.targets)"),
        (Clamped, "parameters have gradient hooks (weight)"),
        (ClampedAfterwards, "parameters have gradient hooks (bias)"),
    ],
)
def test_state_outside_of_the_engine_is_named(
    tmp_path: Path, task: type[Task], message: str
) -> None:
    warnings = [
        each for each in warnings_of(task(), tmp_path) if "the loss was not checked" not in each
    ]
    (warning,) = warnings
    for part in message.split(".*"):
        assert part in warning
    assert "the run depends on micro_size and on the ranks" in warning


def test_a_run_whose_loss_changes_the_dataset_is_not_exact(tmp_path: Path) -> None:
    trainer = train(Curriculum(), tmp_path)
    unsaved = trainer._parts.model.inventory.stored(Ranks())["unsaved"]
    assert list(unsaved) == ["dataset.dataset.level"]


def test_state_that_no_attribute_holds_has_a_warning(
    tmp_path: Path,
) -> None:
    warnings = warnings_of(CountingOutside(), tmp_path)
    assert any(
        "loss() gives a different value when it is called again with the same batch:" in each
        for each in warnings
    )


@pytest.mark.parametrize(
    "task",
    [
        Line,
        Logging,
        Caching,
        Counted,
        EngineDropout,
        Tied,
        FilledLater,
        Grown,
        FrozenNorm,
        NamedAsTheTask,
    ],
)
def test_a_run_that_does_not_depend_on_its_layout_has_no_warning(
    tmp_path: Path, task: type[Task]
) -> None:
    assert warnings_of(task(), tmp_path) == []


def test_the_statistics_of_a_declared_batch_norm_have_one_warning(tmp_path: Path) -> None:
    (warning,) = warnings_of(NormedImages(), tmp_path)
    assert "batch_dependent" in warning


@pytest.mark.parametrize(
    ("name", "args"),
    [
        (
            "causal_lm",
            {
                "max_bytes": 20_000,
                "context": 16,
                "layers": 2,
                "width": 16,
                "heads": 2,
                "dropout": 0.1,
            },
        ),
        ("image_classification", {}),
    ],
)
def test_the_built_in_tasks_have_no_warning(
    tmp_path: Path, name: str, args: dict[str, Any]
) -> None:
    assert warnings_of(BUILT_IN[name](**args), tmp_path) == []


@pytest.mark.parametrize(
    ("strategy", "task"),
    [("ddp", Taught), ("manual", TaughtByTheTask), ("zero1", Counting), ("fsdp", RunningMean)],
)
def test_two_ranks_warn_once_under_every_strategy(
    pool: Pool, tmp_path: Path, strategy: str, task: type[Task]
) -> None:
    pool.run(warnings_on, task, tmp_path, {"strategy": {"name": strategy}}, world_size=2)
    assert len(events(tmp_path, "warning")) == 1


# --- no trace


@pytest.mark.parametrize(
    "task",
    [
        Line,
        Counting,
        CountingInTheModel,
        OwnNoise,
        Taught,
        TaughtByData,
        TaughtByTheTask,
        RunningMean,
        Logging,
    ],
)
def test_checks_of_a_loss_leave_no_trace(task: type[Task]) -> None:
    made: Any = task()
    model = made.model().train()
    before = copy.deepcopy((model.state_dict(), vars(model).get("calls")))
    teacher = copy.deepcopy(made.teacher.state_dict()) if hasattr(made, "teacher") else {}
    attributes = copy.deepcopy(
        {name: each for name, each in vars(made).items() if not isinstance(each, nn.Module)}
    )
    randomness.seed_host(5)
    state = randomness.host_state()
    sample = made.dataset("train")[0]
    check_loss(Inventory(model, made), sample, Precision(), seed=1, device=torch.device("cpu"))
    assert randomness.host_state() == state
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[0][name])
    for name, value in teacher.items():
        assert torch.equal(value, made.teacher.state_dict()[name])
    assert vars(model).get("calls") == before[1]
    for name, value in attributes.items():
        if isinstance(value, torch.Generator):
            assert torch.equal(value.get_state(), getattr(made, name).get_state())
        else:
            assert getattr(made, name) == value
    assert all(parameter.grad is None for parameter in model.parameters())


class Stopping(Taught):
    """Records its teacher at the first step."""

    def __init__(self) -> None:
        self.calls, self.found = 0, torch.zeros(0)

    def loss(self, model: Any, batch: Any) -> Any:
        if len(batch[0]) == 2:  # The warm-up's batch has one sample.
            self.calls += 1
            if self.calls == 1:
                self.found = model["teacher"].weight.clone()
        return super().loss(model, batch)


class MovedTeacher(Stopping):
    """Its teacher begins elsewhere, so that every masked pass changes it."""

    def model(self) -> nn.Module:
        model: Any = super().model()
        with torch.no_grad():
            model["teacher"].weight.add_(1.0)
        self.began = model["teacher"].weight.clone()
        return model


def test_the_warm_up_restores_a_teacher(tmp_path: Path) -> None:
    task = MovedTeacher()
    warnings_of(task, tmp_path)
    assert task.calls
    assert torch.equal(task.found, task.began)


def test_the_warm_up_restores_buffers_and_generators() -> None:
    class Drawing(RunningMean):
        def loss(self, model: nn.Module, batch: Any) -> Any:
            x, y = batch
            return super().loss(
                model, (x + random.random() + float(np.random.rand()) + torch.rand(()), y)
            )

    task = Drawing()
    model = task.model().train()
    _, spec = planned(OPTIONS, 1)
    strategy = DDP(Objective(task, model), Ranks(), spec.strategy)
    gradient = GradientStep(task, strategy, Precision(), Ranks(), Inventory(model, task), seed=1)
    before = copy.deepcopy(model.state_dict())
    randomness.seed_host(5)
    state = randomness.host_state()
    gradient.warm_up(task.collate([task.dataset("train")[1]]))
    gradient.close()
    assert gradient.draws_on_host
    assert randomness.host_state() == state
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


# --- the additivity check


class Terms(Line):
    """A sum beside a mean."""

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return {"ce": super().loss(model, batch), "l1": model(batch[0]).abs().mean()}


class Lightning(Line):
    """A metric among the terms, as a training step of Lightning returns it."""

    def loss(self, model: nn.Module, batch: Any) -> Any:
        near = (model(batch[0]).squeeze(-1) - batch[1]).abs() < 0.5
        return {"loss": super().loss(model, batch), "acc": near.double().mean()}


class Ranked(Line):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        out = model(batch[0])
        return {"fit": super().loss(model, batch), "rank": (out - out.T).square().sum()}


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Terms, "in its term 'l1' is a mean over the micro-batch"),
        (Lightning, "in its term 'acc' is a mean over the micro-batch"),
        (Ranked, "in its term 'rank' depends for each sample on the others in its micro-batch"),
    ],
)
def test_the_term_at_fault_is_named(tmp_path: Path, task: type[Task], message: str) -> None:
    plan, spec = planned(OPTIONS, 1)
    with pytest.raises(EngineError) as caught:
        Trainer(spec, plan, task(), Ranks(), tmp_path).run()
    assert message in str(caught.value)
    assert "'ce'" not in str(caught.value)


def test_an_accepted_run_is_not_refused_at_its_resume(tmp_path: Path) -> None:
    """A teacher that equals its student seems to be no state; later it differs."""
    plan, spec = planned({**OPTIONS, "steps": 6}, 1)
    whole = Taught()
    Trainer(spec, plan, whole, Ranks(), tmp_path / "whole").run()
    Trainer(spec.model_copy(update={"steps": 3}), plan, Taught(), Ranks(), tmp_path / "parts").run()
    again = Taught()
    Trainer(spec, plan, again, Ranks(), tmp_path / "parts", resumes=True).run()
    assert events(tmp_path / "parts", "resumed")
    for name, value in whole.built.state_dict().items():
        assert torch.equal(value, again.built.state_dict()[name]), (
            "nothing in the start moves the teacher"
        )


def test_a_loss_that_would_be_refused_now_resumes(tmp_path: Path) -> None:
    class Becoming(Line):
        """A sum in its first attempt, and a mean in its second."""

        mean = False

        def loss(self, model: nn.Module, batch: Any) -> Any:
            found = super().loss(model, batch)
            return found / len(batch[0]) if self.mean else found

    plan, spec = planned({**OPTIONS, "steps": 3}, 1)
    Trainer(spec, plan, Becoming(), Ranks(), tmp_path).run()
    longer = spec.model_copy(update={"steps": 5})
    Becoming.mean = True
    trainer = Trainer(longer, plan, Becoming(), Ranks(), tmp_path, resumes=True)
    assert trainer.run().steps_done == 5
