"""Predicted memory equals the measurement of a run on the CPU: both count the bytes of tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from lockstep.domain.spec.train import Train
from lockstep.engine.memory import account
from lockstep.engine.memory.forecast import forecast
from lockstep.engine.memory.job_forecast import sample_of
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.loading import load_task
from tests.engine.memory.memory_cases import trained
from tests.harness.ranks import Pool

MICRO, SIZE, WORLD = 8, 32, 2
TASKS: dict[str, dict[str, Any]] = {
    "causal_lm": {"context": 32, "layers": 2, "heads": 2, "width": 64, "max_bytes": 20_000},
    "image_classification": {"width": 16},
    "hf_causal_lm": {"context": 32, "from_scratch": True},
}
"""Without the fields that the folder of a case adds."""


def train_of(name: str, strategy: str, precision: str, args: dict[str, Any]) -> Train:
    return Train.model_validate(
        {
            "task": name,
            "task_args": TASKS[name] | args,
            "batch": {"size": SIZE, "micro_size": MICRO},
            "steps": 2,
            "precision": precision,
            "strategy": {"name": strategy},
        }
    )


def measured(folder: Path) -> dict[str, Any]:
    events = map(json.loads, (folder / "spool" / "events.jsonl").read_text().splitlines())
    return next(event["data"] for event in events if event["kind"] == "memory")


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return arguments that name a tiny model of transformers, its tokenizer and a text."""
    transformers = pytest.importorskip(
        "transformers", reason="NOT RUN: the extra [hf] is not installed"
    )
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("model")
    text = folder / "text.txt"
    text.write_text("one two three four five six seven eight nine ten\n" * 400)
    words = {
        word: index for index, word in enumerate(["?", *sorted(set(text.read_text().split()))])
    }
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "words.json"))
    config = transformers.GPT2Config(
        vocab_size=len(words),
        n_positions=32,
        n_embd=64,
        n_layer=2,
        n_head=2,
        embd_pdrop=0,
        attn_pdrop=0,
        resid_pdrop=0,
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "words.json"), unk_token="?"
    ).save_pretrained(folder)
    return {"model": str(folder), "path": str(text)}


@pytest.mark.parametrize(
    ("name", "strategy", "precision"),
    [
        # Every pair of these three occurs.
        (name, strategy, ("fp32", "bf16")[(row + column) % 2])
        for row, name in enumerate(TASKS)
        for column, strategy in enumerate(("ddp", "zero1", "fsdp"))
    ],
)
def test_prediction_and_measurement_agree(
    pool: Pool,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    name: str,
    strategy: str,
    precision: str,
) -> None:
    args = request.getfixturevalue("language_model") if name == "hf_causal_lm" else {}
    train = train_of(name, strategy, precision, args)
    pool.run(trained, train, MICRO, tmp_path, world_size=WORLD)
    found = measured(tmp_path)
    task = load_task(train.task, train.task_args, tmp_path)
    predicted = forecast(
        task, train, micro_batch_size=MICRO, world_size=WORLD, sample=sample_of(train, task)
    )
    ratio = predicted.peak / found["measured_bytes"]
    assert found["measure"] == "tensors"
    assert 0.9 <= ratio <= 1.1


def test_counting_changes_no_bit_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = train_of("causal_lm", "ddp", "fp32", {})

    def weights(folder: Path) -> dict[str, torch.Tensor]:
        trained(Ranks(), train, MICRO, folder)
        return load_file(next(folder.glob("checkpoints/*/model.safetensors")))

    counted = weights(tmp_path / "counted")
    monkeypatch.setattr(account, "COUNTED_STEPS", 0)
    plain = weights(tmp_path / "plain")
    assert measured(tmp_path / "counted")["measured_bytes"] is not None
    assert measured(tmp_path / "plain")["measured_bytes"] is None
    assert all(torch.equal(value, plain[name]) for name, value in counted.items())
