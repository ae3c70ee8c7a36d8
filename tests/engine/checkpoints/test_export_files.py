"""Files that a task adds to the exported model, and exports that ``transformers`` loads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from lockstep.domain.life.manifest import read_manifest
from lockstep.engine.checkpoints import checkpoint, export
from lockstep.engine.task.hf_causal_lm import HfCausalLM
from lockstep.engine.task.interface import Task
from tests.engine.checkpoints.export_cases import writing
from tests.engine.spool import events
from tests.engine.task.test_text import cache, pretrained, story, tokenizer, trained
from tests.harness.ranks import Pool

__all__ = ["cache", "pretrained", "story", "tokenizer"]  # Fixtures.

LAST = "checkpoints/step-00000012"


def manifest(folder: Path) -> set[str]:
    """Return the names of the files of a complete checkpoint."""
    assert checkpoint.damage_of(folder) == ""
    return set(read_manifest((folder / "manifest.json").read_bytes()).files)


@pytest.mark.parametrize("tied", [True, False])
def test_from_pretrained_loads_the_checkpoint(
    pretrained: Path, story: Path, tmp_path: Path, tied: bool
) -> None:
    transformers = pytest.importorskip("transformers")
    config = json.loads((pretrained / "config.json").read_text())
    (pretrained / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": tied}))
    task = HfCausalLM(model=str(pretrained), path=str(story), context=16, from_scratch=True)
    built: list[nn.Module] = []
    make = task.model
    task.model = lambda: built.append(make()) or built[-1]  # type: ignore[method-assign,func-returns-value]
    trained(task, tmp_path / "run")
    folder = tmp_path / "run" / LAST
    assert {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "model.safetensors",
    } <= manifest(folder)

    loaded, loading = transformers.AutoModelForCausalLM.from_pretrained(
        folder, local_files_only=True, output_loading_info=True
    )
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    assert (loaded.lm_head.weight is loaded.transformer.wte.weight) is tied
    tokens = torch.arange(24).reshape(2, 12) % 32
    with torch.no_grad():
        assert torch.equal(loaded.eval()(tokens).logits, built[-1].eval()(tokens).logits)
    ours = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    theirs = transformers.AutoTokenizer.from_pretrained(pretrained, local_files_only=True)
    text = "the quick red fox"
    assert ours(text)["input_ids"] == theirs(text)["input_ids"]
    assert not list((tmp_path / "run").glob(".export*"))


@pytest.mark.parametrize("mixed", [False, True])
def test_the_configuration_states_the_type_of_the_trained_weights(
    pretrained: Path, tmp_path: Path, mixed: bool
) -> None:
    """A type from the files of the initial weights would make from_pretrained round."""
    transformers = pytest.importorskip("transformers")
    auto = transformers.AutoModelForCausalLM
    auto.from_pretrained(pretrained, dtype="bfloat16").save_pretrained(tmp_path / "half")
    model = auto.from_pretrained(tmp_path / "half", local_files_only=True).float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1e-4)
    if mixed:
        model.transformer.wte.bfloat16()
    before = model.config.to_dict()
    loaded = loaded_again(model, tmp_path / "out")
    assert model.config.to_dict() == before
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value.float()), name


def test_the_configuration_states_the_class_of_the_model(pretrained: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.from_pretrained(pretrained, local_files_only=True)
    config.architectures = None
    loaded_again(transformers.GPT2LMHeadModel(config), tmp_path / "out")
    assert json.loads((tmp_path / "out/config.json").read_text())["architectures"] == [
        "GPT2LMHeadModel"
    ]


def loaded_again(model: nn.Module, folder: Path) -> nn.Module:
    """Export a model as the last checkpoint of a run does, and load it with transformers."""
    transformers = pytest.importorskip("transformers")
    folder.mkdir()
    Task().export_files(model, folder)
    export.parts(model.state_dict(), {})[export.MODEL](folder / export.MODEL)
    loaded: nn.Module = transformers.AutoModelForCausalLM.from_pretrained(
        folder, local_files_only=True
    )
    return loaded


@pytest.mark.parametrize("several", [False, True])
def test_the_tokenizer_keeps_its_chat_templates(
    pretrained: Path, story: Path, tmp_path: Path, several: bool
) -> None:
    transformers = pytest.importorskip("transformers")
    templates = (
        {"default": "{{ messages }}", "tool_use": "tools {{ messages }}"}
        if several
        else "{{ messages }}"
    )
    theirs = transformers.AutoTokenizer.from_pretrained(pretrained, local_files_only=True)
    theirs.chat_template = templates
    theirs.save_pretrained(pretrained)
    task = HfCausalLM(model=str(pretrained), path=str(story), context=16)
    written = tmp_path / "written"
    written.mkdir()
    task.export_files(task.model(), written)
    files, refused = export.files_of(written)
    assert refused == []
    folder = tmp_path / "out"
    folder.mkdir()
    for name, write in files.items():
        write(folder / name)
    assert (
        transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True).chat_template
        == templates
    )


@pytest.mark.parametrize("world_size", [1, 2])
def test_files_of_a_task_are_in_the_last_checkpoint_alone(
    pool: Pool, tmp_path: Path, world_size: int
) -> None:
    pool.run(writing, tmp_path, "writes", world_size=world_size)
    last = tmp_path / "checkpoints/step-00000002"
    assert manifest(last) == {
        "state.json",
        "state.safetensors",
        "model.safetensors",
        "spec.json",
        "labels.json",
    }
    assert json.loads((last / "labels.json").read_text()) == ["cat", "dog"]
    assert manifest(tmp_path / "checkpoints/step-00000001") == {"state.json", "state.safetensors"}
    assert events(tmp_path, "warning") == []


def test_an_exception_of_the_task_leaves_the_weights(pool: Pool, tmp_path: Path) -> None:
    pool.run(writing, tmp_path, "raises", world_size=1)
    assert manifest(tmp_path / "checkpoints/step-00000002") == {
        "state.json",
        "state.safetensors",
        "model.safetensors",
        "spec.json",
    }
    (warning,) = events(tmp_path, "warning")
    assert warning["message"] == (
        "the export lacks the files of the task: export_files raised ValueError: no labels"
    )


def test_files_that_a_checkpoint_cannot_hold_are_named(pool: Pool, tmp_path: Path) -> None:
    pool.run(writing, tmp_path, "refused", world_size=1)
    names = {"state.json", "state.safetensors", "model.safetensors", "spec.json", "labels.json"}
    assert manifest(tmp_path / "checkpoints/step-00000002") == names
    (warning,) = events(tmp_path, "warning")
    assert warning["message"] == (
        "the export skips files of the task: a name (its name does not match "
        "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$), inner (not a regular file), link (not a regular "
        "file), state.json (the name is reserved for Lockstep)"
    )
