"""Initial weights, the fingerprints of model and dataset in a checkpoint, and the exported
model."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_file
from torch import nn

from lockstep.engine.checkpoints import checkpoint, export
from lockstep.engine.checkpoints.initial import load_initial
from lockstep.engine.data import fingerprint
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from tests.engine import cases, mutants
from tests.engine.checkpoints.killed import saver
from tests.engine.spool import events
from tests.engine.toy import Toy, initial
from tests.harness.ranks import Pool

TOY = Toy(items=20, double=False)
OPTIONS: dict[str, Any] = {
    "batch": {"size": 6, "micro_size": 3},
    "optimizer": {"name": "adamw", "lr": 1e-2},
    "steps": 3,
}


class Tied(nn.Module):
    """Embedding that is also the output, as in most language models, with an integer counter."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(5, 3)
        self.norm = nn.LayerNorm(3)
        self.out = nn.Linear(3, 5, bias=False)
        self.out.weight = self.tokens.weight
        self.register_buffer("seen", torch.tensor(7))


def trained(
    pool: Pool, folder: Path, toy: Toy = TOY, world_size: int = 1
) -> tuple[dict[str, torch.Tensor], Path]:
    """Return the weights of a run and its final checkpoint."""
    seen = pool.run(cases.train, toy, OPTIONS, folder, world_size=world_size)
    return seen[0].weights, folder / "checkpoints/step-00000003"


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# --- initial weights


@pytest.mark.contract(42)
@pytest.mark.parametrize(
    "kind", ["folder", "state.safetensors", "safetensors", "state dict", "folder of weights", "job"]
)
def test_a_run_starts_from_the_named_weights_alone(pool: Pool, tmp_path: Path, kind: str) -> None:
    weights, final = trained(pool, tmp_path / "first")
    source = {
        "folder": final,
        "state.safetensors": final / "state.safetensors",
        "safetensors": final / "model.safetensors",
        "state dict": tmp_path / "weights.pt",
        "folder of weights": tmp_path / "downloaded",
        "job": tmp_path / "second/init",
    }[kind]
    torch.save(weights, tmp_path / "weights.pt")
    (tmp_path / "downloaded").mkdir()
    shutil.copy(final / "model.safetensors", tmp_path / "downloaded")
    if kind == "job":
        shutil.copytree(final, source)
    (tmp_path / "second").mkdir(exist_ok=True)
    (
        tmp_path / "second/stop"
    ).touch()  # Before the first step: the final weights equal the initial ones.
    given = "job:0192@3" if kind == "job" else str(source)
    for world_size in (1, 2):
        seen = pool.run(
            cases.train,
            TOY,
            OPTIONS | {"init_from": given},
            tmp_path / "second",
            world_size=world_size,
        )
        assert all(one.steps_done == 0 and equal(one.weights, weights) for one in seen)
    assert events(tmp_path / "second", "initialized") == [{"from": given}] * 2
    assert events(tmp_path / "second", "resumed") == []


@pytest.mark.contract(42)
def test_given_weights_equal_a_model_built_with_them(pool: Pool, tmp_path: Path) -> None:
    untrained = initial(TOY).state_dict()
    torch.save(untrained, tmp_path / "untrained.pt")
    plain = pool.run(cases.train, TOY, OPTIONS, tmp_path / "plain", world_size=2)
    options = OPTIONS | {"init_from": str(tmp_path / "untrained.pt"), "seed": 1337}
    given = pool.run(cases.train, TOY, options, tmp_path / "given", world_size=2)
    assert plain[0].rates == given[0].rates
    assert plain[1].micro_batches == given[1].micro_batches
    assert equal(plain[0].weights, given[0].weights)


@pytest.mark.contract(42)
def test_a_resumed_run_does_not_read_the_initial_weights(pool: Pool, tmp_path: Path) -> None:
    weights, final = trained(pool, tmp_path / "first")
    shutil.copytree(final, tmp_path / "again/resume")
    options = OPTIONS | {"init_from": str(tmp_path / "gone")}
    (seen,) = pool.run(cases.train, TOY, options, tmp_path / "again", world_size=1)
    assert equal(seen.weights, weights)


@pytest.mark.contract(42)
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_mismatch_is_named_key_by_key_on_all_ranks(
    pool: Pool, tmp_path: Path, world_size: int
) -> None:
    weights = initial(TOY).state_dict()
    del weights["scale"]
    weights["hidden.weight"] = torch.zeros(4, 9)
    weights["extra"] = torch.zeros(1)
    torch.save(weights, tmp_path / "other.pt")
    options = OPTIONS | {"init_from": str(tmp_path / "other.pt")}
    with pytest.raises(EngineError) as caught:
        pool.run(cases.train, TOY, options, tmp_path / "run", world_size=world_size)
    assert caught.value.reason == "bad_spec"
    assert str(caught.value).endswith(
        "other.pt does not fit the model: missing: scale; unexpected: extra; "
        "hidden.weight has shape (4, 9), the model's is (4, 3)"
    )


@pytest.mark.contract(42)
def test_many_mismatches_are_counted() -> None:
    there = {f"layer{index}": torch.zeros(1) for index in range(20)}
    found = fingerprint.sentence(fingerprint.differences(there, {}, formats=False))
    assert found.startswith("unexpected: layer0; unexpected: layer1; ")
    assert found.endswith("; and 12 more")


@pytest.mark.contract(42)
def test_numbers_are_converted_to_the_format_of_the_model(tmp_path: Path) -> None:
    weights = {
        name: value.to(torch.bfloat16) for name, value in nn.Linear(3, 3).state_dict().items()
    }
    save_file(weights, tmp_path / "half.safetensors")
    model = nn.Linear(3, 3)
    load_initial(model, str(tmp_path / "half.safetensors"), tmp_path, Ranks())
    assert model.weight.dtype == torch.float32
    assert torch.equal(model.weight, weights["weight"].float())


@pytest.mark.contract(42)
@pytest.mark.parametrize("write", ["ours", "the library's"])
def test_tied_weights_are_needed_under_one_name_only(tmp_path: Path, write: str) -> None:
    torch.manual_seed(1)
    first, second = Tied(), Tied()
    path = tmp_path / "tied.safetensors"
    if write == "ours":
        export.parts(first.state_dict(), {})["model.safetensors"](path)
    else:
        from safetensors.torch import save_model

        save_model(first, path)
    assert len(load_file(path)) == len(first.state_dict()) - 1
    load_initial(second, str(path), tmp_path, Ranks())
    assert equal(first.state_dict(), second.state_dict())
    assert second.out.weight is second.tokens.weight


@pytest.mark.contract(42)
@pytest.mark.parametrize(
    ("name", "content", "message", "reason"),
    [
        ("nothing", None, "nothing does not exist on this node", "bad_spec"),
        ("empty", "folder", "contains neither state.json nor model.safetensors", "bad_spec"),
        ("text.pt", b"these are no weights", "cannot be read as weights", "bad_spec"),
        ("text.safetensors", b"these are no weights", "cannot be read as weights", "bad_spec"),
        ("number.pt", 3, "has no weights: expected a checkpoint or a state dict", "bad_spec"),
        ("torn", "checkpoint", "torn is damaged: state.safetensors has 10 bytes", "storage"),
        (
            "job:0192",
            None,
            "job:0192 is available under the service only",
            "bad_spec",
        ),
    ],
)
def test_a_file_without_weights_is_refused_by_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    content: Any,
    message: str,
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)  # Relative paths begin at the folder of the job's code.
    if content == "folder":
        Path(name).mkdir()
    elif content == "checkpoint":
        saver(tmp_path).write(1, {"model": nn.Linear(1, 1).state_dict()}).folder.rename(name)
        (Path(name) / "state.safetensors").write_bytes(b"0123456789")
    elif isinstance(content, bytes):
        Path(name).write_bytes(content)
    elif content is not None:
        torch.save(content, name)
    with pytest.raises(EngineError, match=message) as caught:
        load_initial(nn.Linear(1, 1), name, tmp_path, Ranks())
    assert caught.value.reason == reason


# --- fingerprints


@pytest.mark.contract(43)
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"width": 5},
            "belongs to another model: hidden.weight has shape .4, 3., the model's is .5, 3.",
        ),
        ({"double": True}, "belongs to another model: scale has float32, the model's is float64"),
        ({"buffer": True}, "belongs to another model: missing: calls"),
        ({"items": 21}, "belongs to another run: samples 20, now 21"),
        (
            {"masked": "all"},
            r"belongs to another dataset: sample 10 differs \(3\); sample 19 differs",
        ),
    ],
)
def test_a_checkpoint_of_another_model_or_dataset_is_refused(
    pool: Pool, tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    _, final = trained(pool, tmp_path / "first")
    shutil.copytree(final, tmp_path / "again/resume")
    with pytest.raises(EngineError, match=message) as caught:
        pool.run(
            cases.train,
            dataclasses.replace(TOY, **changed),
            OPTIONS,
            tmp_path / "again",
            world_size=2,
        )
    assert caught.value.reason == "bad_spec"
    assert "the checkpoint resume belongs" in str(caught.value)


@pytest.mark.contract(43)
def test_parameters_in_another_order_are_refused_even_with_equal_shapes(
    pool: Pool, tmp_path: Path
) -> None:
    _, final = trained(pool, tmp_path / "first")
    shutil.copytree(final, tmp_path / "again/resume")
    with pytest.raises(EngineError, match=r"group 0 has hidden\.weight at index 0, now ") as caught:
        pool.run(
            cases.train,
            TOY,
            OPTIONS,
            tmp_path / "again",
            mutants.parameters_in_another_order,
            world_size=1,
        )
    assert caught.value.reason == "bad_spec"


@pytest.mark.contract(43)
def test_a_dataset_that_changes_at_each_read_is_a_warning(pool: Pool, tmp_path: Path) -> None:
    _, final = trained(pool, tmp_path / "first")
    shutil.copytree(final, tmp_path / "again/resume")
    pool.run(cases.train, TOY, OPTIONS, tmp_path / "again", mutants.items_of_chance, world_size=1)
    cannot_tell, not_seeded = (
        warning["message"] for warning in events(tmp_path / "again", "warning")
    )
    assert "differs each time it is fetched" in cannot_tell
    assert "differs when it is fetched again" in not_seeded
    assert [resumed["step"] for resumed in events(tmp_path / "again", "resumed")] == [3]


def looks(value: Any) -> fingerprint.Samples:
    return {"0": fingerprint.look(value)}


@pytest.mark.contract(43)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.tensor([1, 2, 3]), torch.tensor([1, 3, 2])),
        (torch.tensor([1, 2, 3]), torch.tensor([1, 2, 3], dtype=torch.int32)),
        (torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])),
        (torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 2.0]])),
        (torch.tensor([1.0, math.nan]), torch.tensor([1.0, 2.0])),
        ({"text": "a"}, {"text": "b"}),
        ({"text": "a"}, {"words": "a"}),
        ([torch.zeros(2), 1], [torch.zeros(2), 2]),
        ([1, 2], [1, 2, 3]),
        (np.array([1, 2]), np.array([1, 3])),
        (np.array(["a", "b"]), np.array(["a", "c"])),
        (np.array([b"a", b"b"]), np.array(["a", "b"])),
        (np.array(["a", "b"]), np.array([["a", "b"]])),
        (np.array(["2020-01-01"], "M8[ns]"), np.array(["2020-01-02"], "M8[ns]")),
        (np.array([b"ab"], "V2"), np.array([b"ac"], "V2")),
        (np.array([1, 2], ">i4"), np.array([1, 3], ">i4")),
        (np.array([0.5, 1.0], "g"), np.array([0.5, 2.0], "g")),
        (0.5, 0.6),
        (None, 0),
    ],
)
def test_other_samples_have_another_fingerprint(one: Any, other: Any) -> None:
    assert fingerprint.other_samples(looks(one), looks(other))
    assert not fingerprint.other_samples(looks(one), looks(one))


@pytest.mark.contract(43)
def test_rounding_of_a_decoder_does_not_change_the_fingerprint() -> None:
    torch.manual_seed(0)
    picture = torch.randint(0, 255, (1, 3, 32, 32), dtype=torch.uint8)
    decoded = (picture.int() + torch.randint(0, 2, picture.shape)).clamp(0, 255).to(torch.uint8)
    # A tenth of the pixels differ by one, as between two versions of a decoder.
    decoded = torch.where(torch.rand(picture.shape) < 0.1, decoded, picture)
    another = torch.randint(0, 255, (1, 3, 32, 32), dtype=torch.uint8)
    assert not fingerprint.other_samples(looks(picture), looks(decoded))
    assert fingerprint.other_samples(looks(picture), looks(another))
    assert not fingerprint.other_samples(looks(picture / 255), looks(decoded / 255))
    assert fingerprint.other_samples(looks(picture / 255), looks(another / 255))


@pytest.mark.contract(43)
def test_fingerprints_are_plain_values_and_survive_the_checkpoint(tmp_path: Path) -> None:
    sample = {
        "x": torch.rand(2, 3),
        "text": ["a", b"b", None, True],
        "object": object(),
        "array": np.arange(3),
    }
    seen = looks(sample)
    folder = saver(tmp_path).write(1, {"model": {}, "samples": seen}).folder
    assert checkpoint.load(folder)["samples"] == seen
    assert json.loads(json.dumps(seen)) == seen


# --- the export


def test_only_the_final_checkpoint_has_the_model_and_spec(pool: Pool, tmp_path: Path) -> None:
    options = OPTIONS | {"checkpoint": {"every_steps": 1}}
    seen = pool.run(cases.train, TOY, options, tmp_path, world_size=2)
    names = {
        folder.name: {file.name for file in folder.iterdir()}
        for folder in (tmp_path / "checkpoints").iterdir()
    }
    assert names["step-00000002"] == {"state.json", "state.safetensors", "manifest.json"}
    assert names["step-00000003"] == {
        "state.json",
        "state.safetensors",
        "manifest.json",
        "model.safetensors",
        "spec.json",
    }
    final = tmp_path / "checkpoints/step-00000003"
    assert set(json.loads((final / "manifest.json").read_text())["files"]) == names[
        "step-00000003"
    ] - {"manifest.json"}
    assert equal(load_file(final / "model.safetensors"), seen[0].weights)
    about = json.loads((final / "spec.json").read_text())
    assert (about["step"], about["task"], about["plan"]["batch_size"]) == (3, "causal_lm", 6)
    assert about["spec"]["train"]["optimizer"]["lr"] == 1e-2
    with safe_open(final / "model.safetensors", framework="pt") as file:
        metadata = file.metadata()
    assert metadata["step"] == "3"
    assert metadata["batch_plan"] == "6 = 2 ranks × 3 samples × 1 accumulation step"
    assert float(metadata["loss"]) == about["loss"] > 0


def test_a_changed_model_file_fails_the_manifest(pool: Pool, tmp_path: Path) -> None:
    _, final = trained(pool, tmp_path)
    content = bytearray((final / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (final / "model.safetensors").write_bytes(content)
    with pytest.raises(checkpoint.DamagedCheckpointError, match=r"model\.safetensors was changed"):
        checkpoint.verify(final)


def test_a_tied_model_is_exported_once_and_read_by_the_library(tmp_path: Path) -> None:
    model, again = Tied(), Tied()
    path = tmp_path / "model.safetensors"
    written = export.parts(model.state_dict(), {"job": "tied", "step": 3, "plan": {}})[
        "model.safetensors"
    ](path)
    assert written == checkpoint.digest_of(path)
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {
            "format": "pt",
            "job": "tied",
            "step": "3",
            "out.weight": "tokens.weight",
        }
    load_model(again, path)
    assert equal(model.state_dict(), again.state_dict())


def test_views_empty_and_strided_tensors_are_exported_with_their_values(tmp_path: Path) -> None:
    memory = torch.arange(12.0)
    given = {
        "whole": memory,
        "part": memory[2:5],
        "turned": memory.view(3, 4).T,
        "empty": torch.zeros(0, 3),
        "also_empty": torch.zeros(0, 3),
        "scalar": torch.tensor(3.0, dtype=torch.bfloat16),
        "flag": torch.tensor([True, False]),
    }
    export.parts({**given, "not a tensor": "text"}, {})["model.safetensors"](
        tmp_path / "m.safetensors"
    )
    assert equal(load_file(tmp_path / "m.safetensors"), given)


def test_an_unexportable_model_is_a_warning_beside_the_checkpoint(
    pool: Pool, tmp_path: Path
) -> None:
    with pytest.raises(export.NotExportableError, match="w is a sparse_coo tensor"):
        export.parts({"w": torch.eye(2).to_sparse()}, {})
    with pytest.raises(
        export.NotExportableError, match=r"w has the number format torch\.complex128"
    ):
        export.parts({"w": torch.zeros(1, dtype=torch.complex128)}, {})
    pool.run(cases.train, TOY, OPTIONS, tmp_path, mutants.not_exportable, world_size=1)
    final = tmp_path / "checkpoints/step-00000003"
    assert {file.name for file in final.iterdir()} == {
        "state.json",
        "state.safetensors",
        "manifest.json",
    }
    (warning,) = events(tmp_path, "warning")
    assert (
        warning["message"] == "the final checkpoint was saved without model.safetensors: for a test"
    )
