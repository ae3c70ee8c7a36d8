"""Layers cut over tensor groups: the training of a plain loop, for any layout."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from lockstep.engine.runtime.errors import EngineError
from tests.engine.parallel import parallel_cases as cases
from tests.engine.parallel.small_lm import Expected, reference
from tests.engine.reference import batches_of, distance
from tests.engine.spool import events, records
from tests.harness.ranks import Pool

SETTINGS: dict[str, Any] = {
    "batch": {"size": 5, "micro_size": 1},
    "optimizer": {"name": "adamw", "lr": 1e-2, "weight_decay": 0.1, "betas": [0.9, 0.95]},
    "clip_grad_norm": 0.5,
    "steps": 5,
    "seed": 3,
}
RAGGED = {"batch": {"size": 9, "micro_size": 2}, "steps": None, "epochs": 1}
"""31 samples: three batches of nine, and one of four."""


def layout(tensor: int, strategy: str = "ddp") -> dict[str, Any]:
    """Return the fields of a layout; ``fsdp 2`` has two ranks per sharded copy."""
    name, _, shard = strategy.partition(" ")
    return {
        "parallel": {"tensor": tensor},
        "strategy": {"name": name, "shard": int(shard) if shard else None},
    }


def run(
    pool: Pool, folder: Path, copies: int, tensor: int, mutate: Any = None, **more: Any
) -> Expected:
    """Train, and return the observations with the items of each batch."""
    settings = SETTINGS | layout(tensor) | more
    seen = pool.run(cases.train, settings, folder, mutate, world_size=copies * tensor)
    assert all(seen[rank] == seen[rank - rank % tensor] for rank in range(len(seen)))
    found = observed(folder)
    found.batches = batches_of(  # type: ignore[attr-defined] # beside what the reference has
        seen[::tensor], sizes(settings), settings["batch"]["micro_size"]
    )
    return found


def sizes(settings: dict[str, Any]) -> list[int]:
    size = settings["batch"]["size"]
    samples = size * settings["steps"] if settings["steps"] else settings["epochs"] * 31
    return [min(size, samples - done) for done in range(0, samples, size)]


def observed(folder: Path) -> Expected:
    """Return what the run wrote: whole weights, and the logged norm and loss."""
    logged = records(folder)
    steps = [logged[step] for step in sorted(logged) if "train/lr" in logged[step]]
    last = max((folder / "checkpoints").glob("step-*"))
    return Expected(
        load_file(last / "model.safetensors"),
        [values["train/grad_norm"] for values in steps],
        [values["train/loss"] for values in steps],
    )


def check(found: Expected, expected: Expected) -> None:
    assert distance(found.weights, expected.weights) <= 1e-12
    assert found.norms == pytest.approx(expected.norms, rel=1e-12)
    assert found.losses == pytest.approx(expected.losses, rel=1e-12)


def compared(found: Expected, settings: dict[str, Any]) -> tuple[Expected, Expected]:
    batches: list[list[int]] = found.batches  # type: ignore[attr-defined] # as above
    return found, reference(SETTINGS | settings, 3, batches)


@pytest.mark.contract(1, 2, 3, 6, 16, 19, 25)
@pytest.mark.parametrize(
    ("copies", "tensor", "strategy", "more"),
    [
        (1, 2, "ddp", {}),
        (2, 2, "ddp", {}),
        (2, 2, "ddp", RAGGED),
        (1, 4, "ddp", RAGGED),
        (1, 2, "fsdp", {}),
        (2, 2, "fsdp", RAGGED),
        (2, 2, "fsdp 2", {}),
        (2, 2, "manual", {}),
    ],
    ids=str,
)
def test_a_cut_model_trains_as_a_plain_loop(
    pool: Pool, tmp_path: Path, copies: int, tensor: int, strategy: str, more: dict[str, Any]
) -> None:
    more = more | layout(tensor, strategy)
    check(*compared(run(pool, tmp_path, copies, tensor, **more), more))
    assert events(tmp_path, "warning") == []


def test_recomputed_activations_and_an_evaluation_change_nothing(
    pool: Pool, tmp_path: Path
) -> None:
    more = {"activation_checkpointing": True, "eval": {"every_steps": 2}, "loader": {"workers": 1}}
    found = run(pool, tmp_path / "more", 2, 2, **more)
    check(*compared(found, {}))
    plain = pool.run(
        cases.train, SETTINGS | {"eval": {"every_steps": 2}}, tmp_path / "one", world_size=1
    )
    assert plain
    for step in (2, 4):
        evaluated = records(tmp_path / "more")[step]["eval/loss"]
        assert evaluated == pytest.approx(records(tmp_path / "one")[step]["eval/loss"], rel=1e-12)
    values = records(tmp_path / "more")[3]
    parts = {name: value for name, value in values.items() if name.startswith("time/")}
    step_seconds = parts.pop("time/step_seconds")
    assert math.fsum(parts.values()) == pytest.approx(step_seconds)
    assert values["perf/tensor"] == pytest.approx(parts["time/tensor_seconds"] / step_seconds)
    assert parts["time/tensor_seconds"] > 0 < parts["time/forward_seconds"]


def test_a_cut_layer_may_be_a_block_of_fsdp(pool: Pool, tmp_path: Path) -> None:
    """Its own hooks and those of the shards are on one module."""
    for ranks, cut in ((4, layout(2, "fsdp")), (1, {})):
        settings = SETTINGS | {"steps": 4} | cut
        folder = tmp_path / str(ranks)
        pool.run(cases.train, settings, folder, None, cases.Stack(), world_size=ranks)
    check(observed(tmp_path / "4"), observed(tmp_path / "1"))


@pytest.mark.contract(3, 16, 25)
@pytest.mark.parametrize(
    "mutate", [cases.unaware_and_unchecked, cases.norm_of_every_rank, cases.weights_of_every_rank]
)
def test_a_wrong_rule_fails_this_check(pool: Pool, tmp_path: Path, mutate: Any) -> None:
    found, expected = compared(run(pool, tmp_path, 2, 2, mutate), {})
    with pytest.raises(AssertionError):
        check(found, expected)


def test_a_group_with_other_samples_on_its_ranks_is_refused(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="rank 1 has other samples than rank 0 in step 1") as seen:
        pool.run(cases.train, SETTINGS | layout(2), tmp_path, cases.data_per_rank, world_size=2)
    assert seen.value.reason == "bad_spec"


@pytest.mark.contract(23)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("blocks.0.up.weight", "blocks.0.up.weight differs, between rank 1 and rank 3"),
        ("position.weight", "position.weight differs, on rank 3 from the 3 others"),
    ],
)
def test_slices_are_compared_with_those_of_other_copies(pool: Pool, name: str, words: str) -> None:
    found = pool.run(cases.diverged, name, world_size=4)
    assert all(each.endswith(words) for each in found), found


def test_lower_precision_trains_to_its_own_rounding(pool: Pool, tmp_path: Path) -> None:
    losses = []
    for tensor in (1, 2):
        settings = SETTINGS | layout(tensor) | {"precision": "bf16", "steps": 4}
        pool.run(cases.train, settings, tmp_path / str(tensor), world_size=tensor)
        losses.append(observed(tmp_path / str(tensor)).losses)
    assert losses[1] == pytest.approx(losses[0], rel=2e-2)


# --- checkpoints

OTHERS = [(2, 2, "ddp"), (2, 1, "zero1"), (2, 2, "fsdp"), (1, 4, "manual"), (1, 1, "ddp")]


@pytest.mark.contract(26, 27)
def test_a_run_resumes_on_any_layout_and_exactly_on_its_own(pool: Pool, tmp_path: Path) -> None:
    """One rank begins, two copies of two ranks go on, and the others go on from theirs."""
    settings = SETTINGS | {"checkpoint": {"every_steps": 1, "keep_last": 9}}
    pool.run(cases.train, settings, tmp_path / "first", world_size=1)
    expected = observed(tmp_path / "first").weights
    runs = [("first", 1, (1, 1, "ddp")), ("first", 1, (2, 2, "ddp"))]
    runs += [("first-22ddp", 3, other) for other in OTHERS]
    for source, step, (copies, tensor, name) in runs:
        folder = tmp_path / f"{source}-{copies}{tensor}{name}"
        shutil.copytree(tmp_path / source / f"checkpoints/step-{step:08d}", folder / "resume")
        more = layout(tensor, name)
        pool.run(cases.train, settings | more, folder, world_size=copies * tensor)
        found = observed(folder).weights
        assert distance(found, expected) <= 1e-12, folder.name
        same = folder.name in ("first-11ddp", "first-22ddp-22ddp")
        assert [event["exact"] for event in events(folder, "resumed")] == [same], folder.name
        if same:
            whole = observed(tmp_path / source).weights
            assert all(torch.equal(found[key], whole[key]) for key in expected)


@pytest.mark.contract(27)
def test_loading_and_saving_gives_the_same_bytes_on_any_layout(pool: Pool, tmp_path: Path) -> None:
    first, end = tmp_path / "first", "checkpoints/step-00000002"
    settings = SETTINGS | {"steps": 2}
    pool.run(cases.train, settings | layout(2), first, world_size=4)
    expected = (first / end / "state.safetensors").read_bytes()
    for copies, tensor, name in OTHERS[1:]:
        folder = tmp_path / f"{copies}{tensor}{name}"
        shutil.copytree(first / end, folder / "resume")
        more = layout(tensor, name) | {"checkpoint": {"background": tensor == 2}}
        pool.run(cases.train, settings | more, folder, world_size=copies * tensor)
        assert (folder / end / "state.safetensors").read_bytes() == expected, folder.name


# --- refusals at the start


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"blocks.*.query_norm": None}, r"blocks.\d.query_norm.\w+ is .* no line"),
        ({"blocks.*.qkv": "colwise"}, "times that of the whole model"),
        ({"blocks.*.up": None, "blocks.*.down": None, "blocks.*.nothing": "rowwise"}, "no module of the model has the name 'blocks"),
        ({"blocks.*.up": "sideways"}, "has the word 'sideways'"),
        ({"blocks.*.up": "packed_colwise:0"}, "has the word 'packed_colwise:0'"),
        ({"blocks.0.up": "rowwise"}, "has two words"),
        ({"blocks.*.up": "packed_colwise:32"}, "has 32 outputs in 32 blocks"),
        ({"blocks.*.norm": "colwise"}, "is a LayerNorm; expected an nn.Linear"),
        ({"head": "rowwise"}, "tied to one that is cut otherwise"),
        ({"head": None}, "head shares a weight that the plan cuts"),
        ({"blocks.*.out": "colwise"}, "the cut model raised"),
    ],
)  # fmt: skip
def test_a_wrong_plan_is_refused_at_the_start(
    pool: Pool, tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    plan = {line: word for line, word in (cases.PLAN | changed).items() if word is not None}
    with pytest.raises(EngineError, match=words) as seen:
        pool.run(cases.refused, SETTINGS | layout(2), tmp_path, plan, world_size=2)
    assert seen.value.reason == "bad_spec"


def test_a_task_without_a_plan_is_refused(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="has no tensor plan for SmallLM: define tensor_plan"):
        pool.run(cases.refused, SETTINGS | layout(2), tmp_path, {}, world_size=2)


def test_dropout_unaware_of_the_cut_is_found_at_the_start(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="that of the whole model"):
        pool.run(
            cases.train,
            SETTINGS | layout(2),
            tmp_path,
            cases.dropout_unaware_of_the_cut,
            world_size=2,
        )
