"""Text as tokens: mapped, encoded once, and used for training by the built-in tasks."""

from __future__ import annotations

import fcntl
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from lockstep.domain.spec.train import Train
from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task import text
from lockstep.engine.task.causal_lm import CausalLM
from lockstep.engine.task.hf_causal_lm import HfCausalLM
from tests.engine.cases import planned
from tests.engine.spool import records

WORDS = "the quick brown fox jumps over the lazy dog and runs away from the slow red bear".split()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/lockstep/tokens"


@pytest.fixture
def story(tmp_path: Path) -> Path:
    folder = tmp_path / "story"
    folder.mkdir()
    for number in range(3):
        lines = (
            " ".join(WORDS[(line + word * (number + 1)) % len(WORDS)] for word in range(12))
            for line in range(60)
        )
        (folder / f"{number}.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    tokenizers = pytest.importorskip(
        "tokenizers", reason="NOT RUN: the extra [hf] is not installed"
    )
    model = tokenizers.models.WordLevel(
        {word: number for number, word in enumerate(["?", *sorted(set(WORDS))])}, unk_token="?"
    )
    built = tokenizers.Tokenizer(model)
    built.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    built.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def trained(task: Any, folder: Path, **more: Any) -> dict[int, dict[str, float]]:
    settings = {
        "batch": {"size": 8, "micro_size": 4},
        "steps": 12,
        "optimizer": {"name": "adamw", "lr": 1e-2},
        "eval": {"every_steps": 12},
        **more,
    }
    plan, spec = planned(settings, 1)
    Trainer(Train.model_validate(spec), plan, task, Ranks(), folder).run()
    return records(folder)


def test_one_file_is_mapped_and_equals_its_content(story: Path) -> None:
    mapped = text.byte_tokens(story / "1.txt", "*", 500)
    assert mapped.tolist() == list((story / "1.txt").read_bytes()[:500])
    assert str(story / "1.txt") in Path("/proc/self/maps").read_text()
    assert text.byte_tokens(story, "*.txt", 100_000).tolist() == list(
        b"".join((story / f"{number}.txt").read_bytes() for number in range(3))
    )


def test_a_tokenizer_encodes_the_whole_text_once(story: Path, tokenizer: Path, cache: Path) -> None:
    from tokenizers import Tokenizer

    task = CausalLM(path=str(story), glob="*.txt", tokenizer=str(tokenizer), context=8)
    task.prepare()
    (file,) = cache.iterdir()
    written = file.stat().st_mtime_ns
    whole = "".join((story / f"{number}.txt").read_text() for number in range(3))
    assert (
        np.fromfile(file, np.uint16).tolist()
        == Tokenizer.from_file(str(tokenizer)).encode(whole).ids
    )
    again = CausalLM(path=str(story), glob="*.txt", tokenizer=str(tokenizer), context=8)
    tokens, following = again.dataset("train")[0]
    assert torch.equal(tokens[1:], following[:-1])
    assert [entry.stat().st_mtime_ns for entry in cache.iterdir()] == [written]
    (story / "2.txt").write_text("the bear\n")
    CausalLM(path=str(story), glob="*.txt", tokenizer=str(tokenizer), context=8).prepare()
    assert len(list(cache.iterdir())) == 2, "a changed text must be encoded again"


def test_a_text_is_identified_by_its_bytes(tokenizer: Path, tmp_path: Path) -> None:
    """As in unpacked uploads of code: the texts of two jobs have the same relative name, size and
    time."""
    read = []
    for word in ("quick", "brown"):
        (tmp_path / "t.txt").write_text(f"{word}\n" * 100)
        os.utime(tmp_path / "t.txt", (0, 0))
        task = CausalLM(path=str(tmp_path / "t.txt"), tokenizer=str(tokenizer), context=8)
        task.prepare()
        read.append(task.dataset("train")[0][0].unique().tolist())
    assert len(read[0]) == len(read[1]) == 1
    assert read[0] != read[1]


def test_a_killed_encoding_is_restarted_and_leaves_no_files(
    story: Path, tokenizer: Path, cache: Path
) -> None:
    def task() -> CausalLM:
        return CausalLM(path=str(story), glob="*.txt", tokenizer=str(tokenizer), context=8)

    task().prepare()
    (whole,) = cache.iterdir()
    expected = whole.read_bytes()
    whole.unlink()
    held = whole.with_suffix(".part")
    held.write_bytes(b"half of it")
    with held.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        waiting = threading.Thread(target=task().prepare)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive(), "one that another job is encoding is waited for"
    waiting.join(60)
    assert [file.name for file in cache.iterdir()] == [whole.name]
    assert whole.read_bytes() == expected


def test_a_tokenizer_saved_to_cut_and_pad_encodes_the_whole_text(
    story: Path, tokenizer: Path, tmp_path: Path
) -> None:
    from tokenizers import Tokenizer

    cutting = Tokenizer.from_file(str(tokenizer))
    cutting.enable_truncation(512)
    cutting.enable_padding(length=1024)
    cutting.save(str(tmp_path / "cutting.json"))
    sizes = []
    for name in ("tokenizer.json", "cutting.json"):
        task = CausalLM(path=str(story), glob="*.txt", tokenizer=str(tmp_path / name), context=8)
        sizes.append(len(task.dataset("train")))
    assert sizes[0] == sizes[1]


def test_blocks_end_with_lines_and_lose_nothing(
    story: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "_BLOCK_BYTES", 100)
    blocks = list(text._blocks(story, "*.txt", 5_000))
    assert (
        b"".join(blocks)
        == b"".join((story / f"{number}.txt").read_bytes() for number in range(3))[:5_000]
    )
    assert all(block.endswith(b"\n") for block in blocks[:-1])


def test_causal_lm_learns_words(story: Path, tokenizer: Path, tmp_path: Path) -> None:
    task = CausalLM(
        path=str(story),
        glob="*.txt",
        tokenizer=str(tokenizer),
        context=16,
        layers=1,
        heads=2,
        width=16,
    )
    found = trained(task, tmp_path / "run")
    assert found[1]["train/loss"] == pytest.approx(np.log(len(set(WORDS)) + 1), rel=0.1)
    assert found[12]["train/loss"] < 0.9 * found[1]["train/loss"]
    assert found[12]["eval/perplexity"] == pytest.approx(np.exp(found[12]["eval/loss"]))
    assert found[1]["train/weight"] == 8 * 16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"path": "/nowhere"}, "no text found at /nowhere"),
        ({"tokenizer": "/nowhere.json"}, "file /nowhere.json does not exist"),
    ],
)
def test_a_missing_file_is_named(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(EngineError, match=message) as caught:
        CausalLM(**arguments).dataset("train")
    assert caught.value.reason == "bad_spec"


def test_a_file_that_is_not_a_tokenizer_is_named(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="NOT RUN: the extra [hf] is not installed")
    (tmp_path / "odd.json").write_text("{}")
    with pytest.raises(EngineError, match=r"odd\.json is not a tokenizer file"):
        CausalLM(tokenizer=str(tmp_path / "odd.json")).model()


def test_a_missing_package_is_reported_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(EngineError, match=r"pip install 'lockstep-jobs\[hf\]'"):
        CausalLM(tokenizer="x.json").dataset("train")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(EngineError, match=r"pip install 'lockstep-jobs\[hf\]'"):
        HfCausalLM(model="x", path="y").model()


@pytest.fixture
def pretrained(tmp_path: Path, tokenizer: Path) -> Path:
    """A tiny GPT-2 with its tokenizer, as written by ``save_pretrained``."""
    transformers = pytest.importorskip(
        "transformers", reason="NOT RUN: the extra [hf] is not installed"
    )
    folder = tmp_path / "model"
    torch.manual_seed(3)
    config = transformers.GPT2Config(
        vocab_size=32,
        n_positions=32,
        n_embd=16,
        n_layer=2,
        n_head=2,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer), unk_token="?"
    ).save_pretrained(folder)
    return folder


def test_a_model_of_transformers_is_fine_tuned_from_its_own_weights(
    pretrained: Path, story: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    task = HfCausalLM(model=str(pretrained), path=str(story), context=16)
    weights = load_file(pretrained / "model.safetensors")
    parameters = dict(task.model().named_parameters())
    assert all(
        torch.equal(parameters[name], value)
        for name, value in weights.items()
        if name in parameters
    )
    assert len(weights.keys() & parameters.keys()) > 20
    found = trained(task, tmp_path / "run")
    assert found[12]["train/loss"] < 0.9 * found[1]["train/loss"]
    assert (tmp_path / "run/checkpoints/step-00000012/state.json").is_file()


def test_its_loss_is_the_mean_of_the_model_times_tokens(pretrained: Path, story: Path) -> None:
    task = HfCausalLM(model=str(pretrained), path=str(story), context=16)
    model: nn.Module = task.model().eval()
    dataset = task.dataset("train")
    tokens, following = batch = task.collate([dataset[item] for item in range(4)])
    labels = torch.cat([tokens[:, :1], following], 1)
    extended = torch.cat([tokens, following[:, -1:]], 1)
    with torch.no_grad():
        own = model(
            input_ids=extended, labels=labels
        ).loss  # It shifts the labels itself, and takes the mean.
        ours = task.loss(model, batch) / task.weight(batch)
    assert float(ours) == pytest.approx(float(own), rel=1e-5)


def test_a_context_beyond_the_models_positions_is_refused(pretrained: Path, story: Path) -> None:
    with pytest.raises(EngineError, match="has only 32 positions"):
        HfCausalLM(model=str(pretrained), path=str(story), context=64).model()


def test_random_weights_are_used_on_request(pretrained: Path, story: Path) -> None:
    one = HfCausalLM(model=str(pretrained), path=str(story), context=16, from_scratch=True).model()
    two = HfCausalLM(model=str(pretrained), path=str(story), context=16).model()
    first = dict(one.named_parameters())["transformer.wte.weight"]
    assert not torch.equal(first, dict(two.named_parameters())["transformer.wte.weight"])


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"has no config\.json"):
        HfCausalLM(model=str(tmp_path), path="x").model()
