"""Messages of the engine for a task that breaks the contract of ``Task``."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from lockstep.domain.life.outcomes import Reason
from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.runtime.errors import EngineError, reason_of
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.interface import Task
from tests.engine.cases import planned
from tests.engine.spool import events, records


class Line(Task):
    """Linear fit; subclasses break one rule each."""

    def model(self) -> nn.Module:
        return nn.Linear(2, 1)

    def dataset(self, split: str) -> Dataset[Any]:
        return TensorDataset(torch.arange(20.0).view(10, 2) / 20, torch.arange(10.0) / 10)

    def loss(self, model: nn.Module, batch: Any) -> Any:
        x, y = batch
        return ((model(x).squeeze(-1) - y) ** 2).sum()


class MeanPerSample(Line):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        x, y = batch
        return (model(x).squeeze(-1) - y) ** 2


class OddTerm(Line):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return {"loss in %": super().loss(model, batch)}


class UnknownTerm(Line):
    def weight(self, batch: Any) -> Any:
        return {"other": 1.0}


class NegativeWeight(Line):
    def weight(self, batch: Any) -> float:
        return -1.0


class Unused(Line):
    def model(self) -> nn.Module:
        model = nn.Linear(2, 1)
        model.spare = nn.Parameter(torch.zeros(1))  # type: ignore[assignment]
        return model


class LeftOut(Line):
    def param_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        return [{"params": [model.weight]}]


class Empty(Line):
    def dataset(self, split: str) -> Dataset[Any]:
        return TensorDataset(torch.zeros(0, 2), torch.zeros(0))


class Stream(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([])


class NoLength(Line):
    def dataset(self, split: str) -> Dataset[Any]:
        return Stream()


class Nothing(Line):
    def dataset(self, split: str) -> Any:
        return super().dataset(split) if split == "train" else None


class EmptyEval(Line):
    def dataset(self, split: str) -> Dataset[Any]:
        return (
            super().dataset(split)
            if split == "train"
            else TensorDataset(torch.zeros(0, 2), torch.zeros(0))
        )


class EvalStream(Line):
    def dataset(self, split: str) -> Dataset[Any]:
        return super().dataset(split) if split == "train" else Stream()


class Loaded(Line):
    def dataset(self, split: str) -> Any:
        return torch.utils.data.DataLoader(super().dataset(split))


class Forgetful(Line):
    def model(self) -> Any:
        return None


class Wrapped(Line):
    def model(self) -> nn.Module:
        return nn.DataParallel(super().model())


class NoNumber(Line):
    def weight(self, batch: Any) -> Any:
        return None


class Weights(Line):
    def weight(self, batch: Any) -> Any:
        return torch.ones(len(batch[0]) + 1)


class Detached(Line):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, batch).detach()


class OwnParameter(Line):
    """Learned weight of the loss, which is kept on the task."""

    def __init__(self) -> None:
        self.sigma = nn.Parameter(torch.zeros(()))

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, batch) * torch.exp(-self.sigma) + self.sigma * len(batch[0])


class ForeignParameter(Line):
    """A parameter of the task in the groups of the optimizer, without effect on the loss."""

    def param_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        return [*super().param_groups(model), {"params": [nn.Parameter(torch.zeros(()))]}]


class Frozen(Line):
    def model(self) -> nn.Module:
        return nn.Linear(2, 1).requires_grad_(False)


class Lazy(Line):
    def model(self) -> nn.Module:
        return nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 1))


class Ragged(Line):
    def dataset(self, split: str) -> Dataset[Any]:
        return [(torch.zeros(2 + index), torch.zeros(())) for index in range(10)]  # type: ignore[return-value] # as users do

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, (batch[0][:, :2], batch[1]))


class Unwritten(Task):
    pass


OPTIONS: dict[str, Any] = {
    "batch": {"size": 4, "micro_size": 2},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "steps": 3,
}


def train(task: Task, folder: Path, **more: Any) -> Trainer:
    plan, spec = planned(OPTIONS | more, 1)
    trainer = Trainer(spec, plan, task, Ranks(), folder)
    trainer.run()
    return trainer


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (MeanPerSample, r"must return the sum as a scalar tensor.*a tensor of shape \(2,\)"),
        (UnknownTerm, r"weight\(\) names the terms \['other'\], but loss\(\) returns \['loss'\]"),
        (OddTerm, r"loss\(\) returns a term 'loss in %'"),
        (NegativeWeight, r"weight\(\) must return 0 or more, got -1.0"),
        (Unused, r"the loss does not depend on spare"),
        (LeftOut, r"param_groups\(\) omits bias"),
        (Empty, r"dataset\('train'\) is empty"),
        (NoLength, r"dataset\('train'\) has no length"),
        (Nothing, r"dataset\('eval'\) returned None, and eval.every_steps is set"),
        (EmptyEval, r"dataset\('eval'\) is empty"),
        (EvalStream, r"dataset\('eval'\) has no length"),
        (Loaded, r"dataset\('train'\) returned a DataLoader: return the dataset"),
        (
            Forgetful,
            r"model\(\) must return the nn.Module to train, got None \(missing return statement",
        ),
        (Wrapped, r"model\(\) returns a DataParallel: return the bare model"),
        (Lazy, r"model\(\) returns lazy modules.*no shape yet \(0.weight, 0.bias\): name their"),
        (NoNumber, r"weight\(\) must return a number, got None \(missing return statement"),
        (Weights, r"weight\(\) must return a number, got tensor"),
        (
            Detached,
            r"loss\(\) does not depend on the model's parameters; check that it is not detached",
        ),
        (OwnParameter, r"loss\(\) gives a gradient to task.sigma, which is not a part of model"),
        (ForeignParameter, r"param_groups\(\) names 1 parameter that the model does not have"),
        (Frozen, r"the model has no parameter that requires a gradient"),
        (
            Ragged,
            r"samples cannot be stacked to a micro-batch \(stack expects.*define collate\(self, samples\)",
        ),
    ],
)
def test_a_broken_contract_is_refused_before_the_first_step(
    tmp_path: Path, task: type[Task], message: str
) -> None:
    with pytest.raises(EngineError, match=message) as caught:
        train(task(), tmp_path, eval={"every_steps": 1})
    assert caught.value.reason == "bad_spec"
    assert records(tmp_path) == {}


class UnweighedEval(Line):
    def evaluate(self, model: nn.Module, batch: Any) -> dict[str, tuple[torch.Tensor, float]]:
        return {"loss": (torch.zeros(()), 0.0)}


def test_an_evaluation_without_weight_has_no_number(
    tmp_path: Path,
) -> None:
    """In particular no loss of 0, which would be the best of all checkpoints."""
    train(UnweighedEval(), tmp_path, eval={"every_steps": 1})
    assert not any("eval/loss" in values for values in records(tmp_path).values())
    warnings = [each["message"] for each in events(tmp_path, "warning")]
    assert len([message for message in warnings if "no eval/loss" in message]) == 1


class OwnSettings(Line):
    def param_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        return [{"params": model.parameters(), "amsgrad": True}]


def test_optimizer_settings_of_a_group_apply(tmp_path: Path) -> None:
    trainer = train(OwnSettings(), tmp_path, optimizer={"name": "adamw", "lr": 0.1})
    (state, *_) = trainer._parts.step.optimizer.inner.state.values()
    assert state["max_exp_avg_sq"].abs().max() > 0


X = torch.ones(3, 2)


@pytest.mark.parametrize(
    "batch",
    [
        X,
        (X, torch.ones(5)),
        {"file": ["a.png", "b.png", "c.png"], "x": X},
        [["a.png", "b.png", "c.png"], X],
        ("name", b"bytes", 7, None, object(), [], {"inner": {"deep": ("text", X)}}),
    ],
)
def test_samples_are_counted_by_the_first_tensor(batch: Any) -> None:
    assert Line().weight(batch) == 3.0


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ("text", "the first tensor of the batch, and there is none"),
        (["a", {"b": b"c"}, []], "the first tensor of the batch, and there is none"),
        (["a", torch.tensor(1.0), X], "the batch's first tensor has none: write weight"),
    ],
)
def test_samples_that_cannot_be_counted_are_reported(batch: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Line().weight(batch)


class Named(Line):
    def dataset(self, split: str) -> Dataset[Any]:
        return [(f"{index}.png", *sample) for index, sample in enumerate(super().dataset(split))]  # type: ignore[arg-type, return-value] # as users do

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, batch[1:])


class NumpyNames(Named):
    def collate(self, samples: list[Any]) -> Any:
        names, x, y = super().collate(samples)
        return np.array(names), x, y


@pytest.mark.parametrize("task", [Named, NumpyNames])
def test_a_sample_may_begin_with_its_name(tmp_path: Path, task: type[Task]) -> None:
    train(task(), tmp_path)
    assert max(records(tmp_path)) == 3


class OddMetric(Line):
    def finalize(self, totals: dict[str, float]) -> dict[str, float]:
        return {"top-1 (%)": 1.0}


def test_a_metric_with_an_impossible_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"'top-1 \(%\)' is not a metric name"):
        train(OddMetric(), tmp_path, eval={"every_steps": 1})


def test_a_missing_method_is_refused_with_its_return_value(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match="Unwritten must define model"):
        train(Unwritten(), tmp_path)


class OwnRate(Line):
    def param_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        self.built = model
        return [{"params": model.parameters(), "lr": 0.02}]


def test_the_rate_of_a_group_keeps_its_proportion(tmp_path: Path) -> None:
    plain, own = OwnRate(), OwnRate()
    train(own, tmp_path / "own", schedule={"name": "linear", "warmup_steps": 1})
    train(
        plain,
        tmp_path / "plain",
        schedule={"name": "linear", "warmup_steps": 1},
        optimizer={"name": "sgd", "lr": 0.02},
    )
    for mine, theirs in zip(own.built.parameters(), plain.built.parameters(), strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-6)


class Prepared(Line):
    order: list[str]

    def __init__(self) -> None:
        self.order = []

    def prepare(self) -> None:
        self.order.append("prepare")

    def dataset(self, split: str) -> Dataset[Any]:
        self.order.append(split)
        return super().dataset(split)


def test_prepare_runs_before_the_datasets_are_opened(tmp_path: Path) -> None:
    task = Prepared()
    train(task, tmp_path, eval={"every_steps": 3})
    assert task.order == ["prepare", "train", "eval"]


def test_a_model_that_draws_random_numbers_has_a_warning(tmp_path: Path) -> None:
    class Dropping(Line):
        def model(self) -> nn.Module:
            return nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 1))

    train(Dropping(), tmp_path / "draws")
    train(Line(), tmp_path / "calm")
    assert "draws random numbers" in events(tmp_path / "draws", "warning")[0]["message"]
    assert events(tmp_path / "calm", "warning") == []


def test_a_run_with_dropout_is_repeatable(tmp_path: Path) -> None:
    class Dropping(Line):
        def model(self) -> nn.Module:
            self.built = nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 1))
            return self.built

    tasks = [Dropping(), Dropping()]
    for index, task in enumerate(tasks):
        train(task, tmp_path / str(index), steps=10)
    for one, two in zip(tasks[0].built.parameters(), tasks[1].built.parameters(), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("an error of the user"), Reason.USER_ERROR),
        (RuntimeError("Connection to the label server was closed"), Reason.USER_ERROR),
        (FileNotFoundError(errno.ENOENT, "no such file"), Reason.USER_ERROR),
        (SystemExit(3), Reason.USER_ERROR),
        (EngineError(Reason.BAD_SPEC, "as declared"), Reason.BAD_SPEC),
        (OSError(errno.ENOSPC, "no space left"), Reason.STORAGE),
        (MemoryError(), Reason.OUT_OF_MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory"), Reason.OUT_OF_MEMORY),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory"
            ),
            Reason.OUT_OF_MEMORY,
        ),
        (
            RuntimeError(
                "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
                "[127.0.0.1]:1"
            ),
            Reason.NETWORK,
        ),
        (torch.distributed.DistBackendError("NCCL error in: ..."), Reason.NETWORK),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_exception_has_its_reason(error: BaseException, reason: Reason) -> None:
    assert reason_of(error) is reason


def test_failed_host_allocations_of_torch_are_out_of_memory() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert reason_of(caught.value) is Reason.OUT_OF_MEMORY
