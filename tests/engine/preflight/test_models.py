"""The check of the loss refuses no ordinary model, and leaves no trace in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

from lockstep.engine.preflight import check_size
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.task.interface import Task
from tests.engine.preflight import additive_tasks, coupled_tasks
from tests.engine.preflight.repeatable_cases import Clamped, ClampedAfterwards
from tests.engine.preflight.test_couplings import checked

FLOAT64 = [
    coupled_tasks.Sentences,
    coupled_tasks.AttentionWithMask,
    additive_tasks.Packed,
    additive_tasks.Encoder,
    additive_tasks.Deep,
    additive_tasks.Recurrent,
    additive_tasks.TopTwo,
    additive_tasks.LoRA,
    additive_tasks.NormInEval,
    additive_tasks.Smoothed,
    additive_tasks.CTC,
    additive_tasks.GradientPenalty,
    additive_tasks.Spectral,
    additive_tasks.WeightNormed,
    additive_tasks.DroppedByRow,
    additive_tasks.LoggingAndCounting,
    additive_tasks.Teacher,
    additive_tasks.Cancelling,
]


@pytest.mark.parametrize("task", FLOAT64)
def test_an_ordinary_model_is_equal_to_rounding(task: Callable[[], Task]) -> None:
    found = checked(task())
    assert found.note == ""
    assert found.difference is not None
    assert found.difference <= 1e-11


@pytest.mark.parametrize("task", [additive_tasks.Narrow, additive_tasks.Autocast])
def test_parts_in_16_bits_are_checked_to_their_precision(task: Callable[[], Task]) -> None:
    found = checked(task())
    assert found.difference is not None
    assert found.difference <= 2e-2


def test_samples_that_are_not_finite_are_named_and_left_out() -> None:
    found = checked(additive_tasks.NotFinite())
    assert found.difference is not None
    assert found.difference <= 1e-12
    assert "samples of the dataset whose loss or gradient is not finite: " in found.note


def test_amplified_rounding_is_not_a_coupling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_size, "_FREE", 0.0)
    found = checked(additive_tasks.Amplifying())
    assert "its rounding" in found.note
    with pytest.raises(EngineError, match="is a mean over the micro-batch"):
        checked(additive_tasks.AmplifyingMean())


@pytest.mark.parametrize("task", [Clamped, ClampedAfterwards])
def test_hooks_on_parameters_are_no_part_of_the_loss(
    task: type[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_size, "_FREE", 0.0)
    made = task()
    model: Any = made.model()
    made.model = lambda: model  # type: ignore[method-assign]
    found = checked(made)
    assert found.difference is not None
    assert found.difference <= 1e-6
    made.loss(model, made.collate([made.dataset("train")[11]])).backward()
    hooked = model.weight if task is Clamped else model.bias
    assert float(hooked.grad.abs().max()) == pytest.approx(0.1)


def test_a_mode_that_the_model_keeps_itself_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_size, "_FREE", 0.0)
    task = additive_tasks.OwnMode()
    model: Any = task.model()
    task.model = lambda: model  # type: ignore[method-assign]
    assert checked(task).difference is not None
    assert model.noisy
    assert all(module.training for module in model.modules())


def transformer(kind: str) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    if kind == "gpt2":
        config = transformers.GPT2Config(vocab_size=11, n_embd=8, n_layer=2, n_head=2)
    elif kind == "llama":
        config = transformers.LlamaConfig(**sizes, intermediate_size=16)
    elif kind == "bert":  # The true gradient of the key bias is zero.
        return transformers.BertForMaskedLM(transformers.BertConfig(**sizes, intermediate_size=16))
    else:
        config = transformers.MixtralConfig(
            **sizes, intermediate_size=16, num_local_experts=4, num_key_value_heads=2
        )
    model: nn.Module = transformers.AutoModelForCausalLM.from_config(config)
    return model


class Language(coupled_tasks.Sentences):
    """A causal language model of ``transformers``, without the mean of its own loss."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind

    def model(self) -> nn.Module:
        return transformer(self.kind)

    def loss(self, model: Any, batch: Any) -> Any:
        logits = model(input_ids=batch, attention_mask=(batch != 0).long()).logits
        return self.summed(logits, batch)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert", "mixtral"])
def test_models_of_transformers_are_equal_to_rounding(kind: str) -> None:
    found = checked(Language(kind))
    assert found.difference is not None
    assert found.difference <= (1e-12 if not found.note else 1e-5)
