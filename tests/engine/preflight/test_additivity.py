"""A loss that is not a sum over samples is refused before the first step, with its cause by
name."""

from __future__ import annotations

import copy
import random
import re
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from lockstep.engine.preflight import check_size, chosen_samples
from lockstep.engine.preflight.additivity_check import Checked, _within, check
from lockstep.engine.preflight.check_size import CheckSize
from lockstep.engine.preflight.effects import CallEffects
from lockstep.engine.runtime import device, randomness, telemetry
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.builtin import BUILT_IN
from lockstep.engine.task.interface import Task
from tests.engine.contract import Distance
from tests.engine.preflight.loss_tasks import (
    CORRECT,
    WRONG,
    BatchNormed,
    BatchNormOfVectors,
    Classify,
    Dropping,
    InBatchNegatives,
    Mean,
    Tokens,
    settings,
)

pytestmark = pytest.mark.contract(40)

CLASSES = 3


def checked(task: Task, *, model: nn.Module | None = None, seed: int = 3) -> Checked:
    torch.manual_seed(1)
    dataset = task.dataset("train")
    model = task.model().train() if model is None else model
    return check(task, model, dataset, size=len(dataset), train=settings(seed, 16))  # type: ignore[arg-type]


def refusal(task: Task, **more: Any) -> str:
    with pytest.raises(EngineError) as caught:
        checked(task, **more)
    assert caught.value.reason == "bad_spec"
    return str(caught.value)


@pytest.mark.parametrize("task", CORRECT)
def test_a_sum_passes_to_the_last_bits_of_float64(task: type[Task]) -> None:
    found = checked(task())
    assert found.note == ""
    assert found.difference is not None
    assert Distance(found.difference) <= 1e-12


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
def test_the_built_in_tasks_pass(name: str, args: dict[str, Any]) -> None:
    found = checked(BUILT_IN[name](**args))
    assert found.note == ""
    assert found.difference is not None
    assert Distance(found.difference) <= 1e-12


@pytest.mark.parametrize(("task", "message"), WRONG, ids=[task.__name__ for task, _ in WRONG])
def test_a_loss_that_is_not_a_sum_is_refused_by_cause(task: type[Task], message: str) -> None:
    for seed in (0, 1):
        text = refusal(task(), seed=seed)
        assert re.search(message, text), text
        assert text.startswith("train.py:Mine: ")


def test_the_error_names_the_line_in_the_users_file() -> None:
    line = Mean.loss.__code__.co_firstlineno
    assert f"loss() (loss_tasks.py, line {line}) is a mean" in refusal(Mean())


@pytest.mark.parametrize("wrong", [Mean, InBatchNegatives, BatchNormed, BatchNormOfVectors])
def test_a_task_that_declares_its_dependence_is_not_checked(wrong: type[Task]) -> None:
    class Declared(wrong):  # type: ignore[misc, valid-type]
        batch_dependent: ClassVar[bool] = True

    assert checked(Declared()) == Checked()


# --- side effects, and undecided cases


class Counting(Dropping):
    """Keeps state of every kind."""

    def __init__(self) -> None:
        self.calls, self.seen = 0, []  # type: ignore[var-annotated]
        self.scale = torch.ones(())
        self.head = nn.BatchNorm1d(CLASSES, affine=False).eval()

    def loss(self, model: nn.Module, batch: Any) -> Any:
        self.calls += 1
        self.seen.append(len(batch[0]))
        self.scale.mul_(1.5)
        return super().loss(model, batch)


@pytest.mark.parametrize("free", [0.25, 0.0], ids=["on a copy", "in place"])
def test_the_check_leaves_model_task_and_generators_unchanged(
    free: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_size, "_FREE", free)
    task = Counting()
    model = task.model().train()
    model.register_buffer("steps", torch.zeros(1))
    nn.init.zeros_(model[-1].bias)  # type: ignore[index, arg-type]
    before = copy.deepcopy(model.state_dict())
    dataset = task.dataset("train")
    randomness.seed_host(5)
    state = randomness.host_state()
    found = check(task, model, dataset, size=30, train=settings(3, 8))
    assert found.difference is not None
    assert randomness.host_state() == state
    assert (task.calls, task.seen, float(task.scale)) == (0, [], 1.0)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
        assert value.dtype == before[name].dtype
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(module.training for module in model.modules())


def test_a_task_that_holds_its_model_is_checked_on_the_copy() -> None:
    class Holding(Classify):
        def model(self) -> nn.Module:
            self.built = super().model()
            return self.built

        def loss(self, model: nn.Module, batch: Any) -> Any:
            return F.cross_entropy(self.built(batch[0]), batch[1], reduction="sum")

    task = Holding()
    assert checked(task).difference is not None
    assert all(parameter.grad is None for parameter in task.built.parameters())


class FewWithWeight(Tokens):
    """The first samples of the run are masked."""

    weighty = 5

    def dataset(self, split: str) -> Dataset[Any]:
        tokens, _ = super().dataset(split).tensors  # type: ignore[attr-defined]
        counted = torch.zeros(30, dtype=torch.bool)
        counted[torch.arange(self.weighty) * 5] = True
        return TensorDataset(tokens, torch.where(counted[:, None], tokens % CLASSES, -100))


class FewWithMean(FewWithWeight):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, batch) / max(1.0, self.weight(batch))


class NoneWithWeight(FewWithWeight):
    weighty = 0


def test_samples_without_weight_are_skipped() -> None:
    found = checked(FewWithWeight())
    assert found.difference is not None
    assert Distance(found.difference) <= 1e-12
    assert "is a mean over the micro-batch" in refusal(FewWithMean())


def test_a_batch_without_any_weight_gives_no_result() -> None:
    found = checked(NoneWithWeight())
    assert found.difference is None
    assert found.note.startswith(
        "weight() is 0 for the first 64 samples, so they do not contribute to training"
    )


class Single(Classify):
    """Requires float32."""

    def loss(self, model: nn.Module, batch: Any) -> Any:
        logits = model(batch[0])
        if logits.dtype != torch.float32:
            raise TypeError("expected float32")
        return F.cross_entropy(logits, batch[1], reduction="sum")


class SingleMean(Single):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, batch) / len(batch[0])


class SinglePenalty(Single):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, batch) + 0.1 * sum(p.square().sum() for p in model.parameters())


def test_a_model_that_cannot_run_in_float64_is_checked_in_float32() -> None:
    found = checked(Single())
    assert found.note == "the loss was checked to the precision of float32"
    assert found.difference is not None
    assert found.difference <= 1e-5
    assert "is a mean over the micro-batch" in refusal(SingleMean())
    assert "an L2 penalty" in refusal(SinglePenalty())


class PartlySingle(Classify):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return F.cross_entropy(model(batch[0]).float(), batch[1], reduction="sum").double()


class PartlySingleMean(PartlySingle):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, batch) / len(batch[0])


def test_rounding_inside_a_model_is_not_a_wrong_loss() -> None:
    notes = {checked(PartlySingle(), seed=seed).note for seed in range(8)}
    assert "the loss was checked to the precision of float32" in notes
    refusal(PartlySingleMean())


class Noisy(Classify):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return F.cross_entropy(
            model(batch[0] + torch.randn_like(batch[0])), batch[1], reduction="sum"
        )


class NoisyCollate(Classify):
    def collate(self, samples: list[Any]) -> Any:
        return super().collate([(x * random.random(), y) for x, y in samples])


class NotFinite(Classify):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, batch) * float("nan")


class OwnNoiseCollate(Classify):
    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def collate(self, samples: list[Any]) -> Any:
        x, y = super().collate(samples)
        return x * self.rng.uniform(0.5, 1.5), y


class Failing(Classify):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        raise KeyError("label")


@pytest.mark.parametrize(
    ("task", "note"),
    [
        (Noisy, "it draws random numbers, even in eval mode"),
        (NoisyCollate, "collate() draws random numbers, which depend on micro_size"),
        (NotFinite, "the gradient of the first samples is zero or not finite"),
        (Failing, "it raised KeyError: 'label'"),
    ],
)
def test_an_undecided_check_is_reported(task: type[Task], note: str) -> None:
    effects = CallEffects(draws=task is Noisy)
    assert checked(task()) == Checked(note=f"the loss was not checked: {note}", effects=effects)


def test_a_collate_with_a_generator_of_its_own_is_no_coupling_of_samples() -> None:
    note = checked(OwnNoiseCollate()).note
    assert "collate() gives another batch for the same samples: it draws from a generator" in note


def test_the_first_line_of_a_long_exception_is_reported() -> None:
    class Wordy(Failing):
        def loss(self, model: nn.Module, batch: Any) -> Any:
            raise NotImplementedError("no such kernel\n" + "CPU: registered\n" * 100)

    assert checked(Wordy()).note.endswith("it raised NotImplementedError: no such kernel")


def test_a_large_model_is_checked_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_size, "_FREE", 0.0)
    for task in CORRECT[::2]:
        found = checked(task())
        assert found.note == "the loss was checked to the precision of float32"
        assert found.difference is not None
        assert found.difference <= 1e-5
    assert "is a mean over the micro-batch" in refusal(Mean())


def test_a_slow_model_is_checked_with_fewer_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(device.TRAITS, "cpu", replace(device.TRAITS["cpu"], check_flops_max=1.0))
    found = checked(Classify())
    assert found.samples == 4
    assert found.note.endswith("checked with 4 samples: 16 would take too long")


def test_a_shortage_of_memory_makes_the_check_smaller() -> None:
    tried: list[CheckSize] = []

    def outcome(size: CheckSize) -> Checked | Exception:
        tried.append(size)
        return Checked(1.0) if size.samples < 16 else torch.OutOfMemoryError("no memory")

    assert _within(CheckSize(16, copies=True), outcome, Ranks())[0] == Checked(1.0)
    assert tried == [CheckSize(16, copies=True), CheckSize(16, False), CheckSize(8, False)]


def test_a_slow_dataset_is_scanned_for_a_short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen_samples, "SCAN_SECONDS_MAX", 0.0)
    assert checked(Classify()).samples == 4
    assert "is a mean over the micro-batch" in refusal(Mean())


class Popping(Classify):
    """Changes its argument, as some collations do."""

    def dataset(self, split: str) -> Any:
        tensors = super().dataset(split)
        return [{"x": x, "y": y} for x, y in tensors]  # type: ignore[attr-defined]

    def collate(self, samples: list[Any]) -> Any:
        return torch.stack([sample.pop("x") for sample in samples]), torch.stack(
            [sample.pop("y") for sample in samples]
        )


def test_a_collation_that_changes_its_samples_is_checked() -> None:
    class Fresh(Popping):
        def dataset(self, split: str) -> Any:
            samples = super().dataset(split)

            class Copies(Dataset[Any]):
                def __len__(self) -> int:
                    return len(samples)

                def __getitem__(self, index: int) -> Any:
                    return dict(samples[index])

            return Copies()

    found = checked(Fresh())
    assert found.difference is not None
    assert Distance(found.difference) <= 1e-12


def test_copies_of_the_check_do_not_count_as_training_memory() -> None:
    cpu = torch.device("cpu")
    held = torch.ones(50_000_000)  # 200 MB, as the copy of a model may have.
    at_most = telemetry.peak_bytes(cpu)
    del held
    telemetry.forget_peak(cpu)
    assert telemetry.peak_bytes(cpu) < at_most - 150e6
