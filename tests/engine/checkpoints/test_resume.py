"""A run that was stopped and resumed ends like one that was not.

With new processes between them: ``tests.engine.runtime.test_alone``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.engine.checkpoints import checkpoint
from lockstep.engine.runtime.errors import EngineError
from tests.engine import cases, mutants
from tests.engine.cases import Seen
from tests.engine.checkpoints.saves import same
from tests.engine.reference import batches_of, distance
from tests.engine.spool import events, records
from tests.engine.toy import Toy
from tests.harness.ranks import Pool

OPTIONS = cases.OPTIONS | {
    "steps": 6,
    "checkpoint": {"every_steps": 2},
    "eval": {"every_steps": 3},
    # Several buckets, as in a real model: the order of additions depends on the bucket.
    "strategy": {"bucket_cap_mb": 1e-4},
}
TOY = Toy(items=33, double=False, noise=True, dropout=0.3)
"""Batches run across epoch ends; items and the model draw random numbers."""


def whole_and_resumed(
    pool: Pool,
    folder: Path,
    world_size: int,
    *,
    mutate: Any = None,
    options: dict[str, Any] = OPTIONS,
    toy: Toy = TOY,
) -> tuple[list[Seen], list[Seen]]:
    """Train once without interruption, and once resumed from its checkpoint of step 4."""
    whole = pool.run(cases.train, toy, options, folder / "whole", mutate, world_size=world_size)
    shutil.copytree(folder / "whole/checkpoints/step-00000004", folder / "again/resume")
    again = pool.run(cases.train, toy, options, folder / "again", mutate, world_size=world_size)
    assert [resumed["step"] for resumed in events(folder / "again", "resumed")] == [4]
    return whole, again


def check_bitwise(
    whole: list[Seen], again: list[Seen], whole_folder: Path, folder: Path, step: int
) -> None:
    """Compare weights, rates, items and metrics after ``step``, and the optimizer's state at the
    end."""
    for before, after in zip(whole, again, strict=True):
        assert before.micro_batches[-len(after.micro_batches) :] == after.micro_batches
        assert before.rates[step:] == after.rates
        for name, value in before.weights.items():
            assert torch.equal(value, after.weights[name]), name
    old, new = records(whole_folder), records(folder)
    assert sorted(new) == list(range(step + 1, max(old) + 1))
    last = f"checkpoints/step-{max(old):08d}"
    assert same(checkpoint.load(whole_folder / last), checkpoint.load(folder / last))
    for step, values in new.items():
        for name in ("train/loss", "train/grad_norm", "train/lr", "eval/loss"):
            assert values.get(name) == old[step].get(name)


@pytest.mark.contract(26)
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_a_run_stopped_after_any_step_ends_bitwise_equal(
    pool: Pool, tmp_path: Path, world_size: int
) -> None:
    options = OPTIONS | {"checkpoint": {"every_steps": 1, "keep_last": 100}}
    whole = pool.run(cases.train, TOY, options, tmp_path / "whole", world_size=world_size)
    for step in range(1, 6):
        folder = tmp_path / f"after{step}"
        shutil.copytree(tmp_path / f"whole/checkpoints/step-{step:08d}", folder / "resume")
        again = pool.run(cases.train, TOY, options, folder, world_size=world_size)
        assert events(folder, "resumed") == [{"step": step, "exact": True, "from": "resume"}]
        check_bitwise(whole, again, tmp_path / "whole", folder, step)


@pytest.mark.contract(26)
@pytest.mark.parametrize("name", ["ddp", "zero1"])
def test_a_run_with_one_micro_batch_per_step_ends_bitwise_equal(
    pool: Pool, tmp_path: Path, name: str
) -> None:
    """On three ranks, a sum that is divided and a part that is multiplied by a third round
    differently."""
    options = OPTIONS | {"batch": {"size": 14, "micro_size": 5}, "strategy": {"name": name}}
    whole, again = whole_and_resumed(pool, tmp_path, 3, options=options)
    check_bitwise(whole, again, tmp_path / "whole", tmp_path / "again", 4)


@pytest.mark.contract(26)
def test_dropping_any_restored_component_fails_this_check(pool: Pool, tmp_path: Path) -> None:
    toy = dataclasses.replace(TOY, buffer=True)
    whole = pool.run(cases.train, toy, OPTIONS, tmp_path / "whole", world_size=1)
    for mutant in (
        None,
        mutants.model_not_restored,
        mutants.optimizer_not_restored,
        mutants.sampler_not_restored,
        mutants.schedule_not_restored,
        mutants.buffers_not_restored,
    ):
        folder = tmp_path / (mutant.__name__ if mutant else "right")
        shutil.copytree(tmp_path / "whole/checkpoints/step-00000004", folder / "resume")
        again = pool.run(cases.train, toy, OPTIONS, folder, mutant, world_size=1)
        with pytest.raises(AssertionError) if mutant else contextlib.nullcontext():
            check_bitwise(whole, again, tmp_path / "whole", folder, 4)


@pytest.mark.contract(26)
def test_buckets_rebuilt_after_the_first_step_fail_this_check(pool: Pool, tmp_path: Path) -> None:
    wide = Toy(items=33, double=False, width=512)
    # Views of buckets would be replaced during the loss, which ends such a run at once.
    copies = OPTIONS | {"strategy": {"gradient_as_bucket_view": False}}
    whole, again = whole_and_resumed(
        pool, tmp_path, 3, mutate=mutants.buckets_not_fixed, options=copies, toy=wide
    )
    with pytest.raises(AssertionError):
        check_bitwise(whole, again, tmp_path / "whole", tmp_path / "again", 4)
    right = tmp_path / "right"
    whole, again = whole_and_resumed(pool, right, 3, toy=wide)
    check_bitwise(whole, again, right / "whole", right / "again", 4)


@pytest.mark.contract(26)
def test_a_stop_saves_the_state_that_an_uninterrupted_run_saves(pool: Pool, tmp_path: Path) -> None:
    options = OPTIONS | {"checkpoint": {"every_steps": 1, "keep_last": 100}}
    toy = Toy(items=33)
    pool.run(cases.train, toy, options, tmp_path / "whole", world_size=2)
    stopped_after = set()
    for fetched in (72, 87, 112):  # Items of rank 0, with those of the checks at the start.
        folder = tmp_path / f"stop{fetched}"
        asking = dataclasses.replace(toy, stop_after=fetched)
        settings = options | {"checkpoint": {"every_steps": None}}
        (seen, _) = pool.run(
            cases.train, asking, settings, folder, cases.checks_in_every_step, world_size=2
        )
        name = f"checkpoints/step-{seen.steps_done:08d}"
        assert same(checkpoint.load(folder / name), checkpoint.load(tmp_path / "whole" / name))
        stopped_after.add(seen.steps_done)
    assert len(stopped_after) == 3


@pytest.mark.contract(27)
def test_a_run_resumed_on_other_ranks_is_equal_to_rounding(pool: Pool, tmp_path: Path) -> None:
    toy = Toy(items=33, noise=True)
    whole = pool.run(cases.train, toy, OPTIONS, tmp_path / "whole", world_size=2)
    items = batches_of([one.micro_batches for one in whole], [14] * 6, 2)
    for world_size, step, source in ((3, 2, "whole"), (1, 4, "3")):
        folder = tmp_path / str(world_size)
        shutil.copytree(tmp_path / source / f"checkpoints/step-{step:08d}", folder / "resume")
        options = OPTIONS | {"batch": {"size": 14, "micro_size": world_size + 2}}
        again = pool.run(cases.train, toy, options, folder, world_size=world_size)
        assert events(folder, "resumed")[0] == {"step": step, "exact": False, "from": "resume"}
        assert distance(again[0].weights, whole[0].weights) <= 1e-12
        mine = batches_of([one.micro_batches for one in again], [14] * (6 - step), world_size + 2)
        assert [sorted(batch) for batch in mine] == [sorted(batch) for batch in items[step:]]


@pytest.mark.contract(30)
def test_a_run_resumed_at_step_10000_fetches_nothing_twice(pool: Pool, tmp_path: Path) -> None:
    options = OPTIONS | {"steps": 10_002, "checkpoint": {"every_steps": None}, "eval": {}}
    (tmp_path / "short").mkdir()
    stopping = Toy(items=33, stop_after=76)
    pool.run(cases.train, stopping, options, tmp_path / "short", world_size=1)
    (short,) = (tmp_path / "short/checkpoints").iterdir()
    # Training to step 10,000 would change the weights, but not the items fetched after it.
    far = checkpoint.save(tmp_path / "far", 10_000, checkpoint.load(short)).folder
    fetched = {}
    for name, source in (("fresh", None), ("resumed", far)):
        folder = tmp_path / name
        if source is not None:
            shutil.copytree(source, folder / "resume")
        folder.mkdir(exist_ok=True)
        (
            folder / "stop"
        ).touch()  # Handled once the first batch is fetched, before it is trained on.
        toy = Toy(items=33, log_items=str(tmp_path / f"{name}.txt"))
        (seen,) = pool.run(cases.train, toy, options, folder, world_size=1)
        assert seen.stopped
        fetched[name] = len((tmp_path / f"{name}.txt").read_text().split())
    assert seen.steps_done == 10_000
    assert fetched["resumed"] <= 14 + 14 + 28, (
        "two batches, nine samples thrice, and the masked one"
    )
    assert fetched["fresh"] == fetched["resumed"] + 33 - 8, "a resumed run scans 8 of 33 samples"


def test_a_stop_ends_all_ranks_at_the_same_step_with_a_checkpoint(
    pool: Pool, tmp_path: Path
) -> None:
    options = OPTIONS | {
        "steps": 1000,
        "checkpoint": {"every_steps": None},
        "schedule": {"name": "constant"},
    }
    toy = Toy(items=33, stop_after=92)  # Rank 0 requests it while it fetches a batch.
    seen = pool.run(cases.train, toy, options, tmp_path, world_size=3)
    (step,) = {one.steps_done for one in seen}
    assert 1 <= step < 20
    assert all(one.stopped for one in seen)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [f"step-{step:08d}"]
    (saved,) = events(tmp_path, "checkpoint")
    assert (saved["step"], saved["final"]) == (step, False)
    assert max(records(tmp_path)) == step

    # The next attempt ends bitwise equal to an undisturbed run.
    options = options | {"steps": step + 5}
    shutil.copytree(tmp_path / "checkpoints" / saved["folder"], tmp_path / "next/resume")
    resumed = pool.run(cases.train, Toy(items=33), options, tmp_path / "next", world_size=3)
    plain = pool.run(cases.train, Toy(items=33), options, tmp_path / "plain", world_size=3)
    assert distance(resumed[2].weights, plain[2].weights) == 0


def test_a_stop_before_the_first_step_ends_without_one(pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    seen = pool.run(cases.train, TOY, OPTIONS, tmp_path, world_size=2)
    assert {(one.steps_done, one.stopped) for one in seen} == {(0, True)}
    assert not (tmp_path / "checkpoints").exists()


def test_a_run_resumed_at_its_end_publishes_its_result_again(pool: Pool, tmp_path: Path) -> None:
    whole = pool.run(cases.train, TOY, OPTIONS, tmp_path / "whole", world_size=2)
    shutil.copytree(tmp_path / "whole/checkpoints/step-00000006", tmp_path / "again/resume")
    again = pool.run(cases.train, TOY, OPTIONS, tmp_path / "again", world_size=2)
    assert [
        (saved["step"], saved["final"]) for saved in events(tmp_path / "again", "checkpoint")
    ] == [(6, True)]
    assert distance(again[0].weights, whole[0].weights) == 0
    assert records(tmp_path / "again") == {}


def test_checkpoints_are_pruned_to_the_newest(pool: Pool, tmp_path: Path) -> None:
    options = OPTIONS | {"checkpoint": {"every_steps": 2, "keep_last": 2}}
    pool.run(cases.train, TOY, options, tmp_path, world_size=1)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "step-00000004",
        "step-00000006",
    ]
    assert [saved["step"] for saved in events(tmp_path, "checkpoint")] == [2, 4, 6]
    assert [saved["final"] for saved in events(tmp_path, "checkpoint")] == [False] * 2 + [True]


@pytest.mark.parametrize("damage", ["torn", "flipped", "unfinished"])
def test_a_damaged_checkpoint_is_refused_by_name(pool: Pool, tmp_path: Path, damage: str) -> None:
    pool.run(cases.train, TOY, OPTIONS, tmp_path / "whole", world_size=1)
    resume = tmp_path / "again/resume"
    shutil.copytree(tmp_path / "whole/checkpoints/step-00000004", resume)
    content = bytearray((resume / "state.safetensors").read_bytes())
    if damage == "torn":
        (resume / "state.safetensors").write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        content[len(content) // 2] ^= 1
        (resume / "state.safetensors").write_bytes(content)
    else:
        (resume / "manifest.json").unlink()
    wanted = {
        "torn": "state.safetensors has",
        "flipped": "state.safetensors was changed",
        "unfinished": "manifest.json is missing",
    }[damage]
    with pytest.raises(EngineError, match=wanted) as caught:
        pool.run(cases.train, TOY, OPTIONS, tmp_path / "again", world_size=2)
    assert caught.value.reason == "storage"
    (skipped,) = events(tmp_path / "again", "checkpoint_skipped")
    assert skipped["folder"] == "resume"
    assert wanted in skipped["why"]


@pytest.mark.parametrize(
    ("step", "wanted", "reason"),
    [
        (2, "the nodes have different checkpoints", "network"),
        (4, "copy of the checkpoint is damaged", ""),
    ],
)
def test_nodes_with_different_copies_of_a_checkpoint_do_not_train(
    pool: Pool, tmp_path: Path, step: int, wanted: str, reason: str
) -> None:
    pool.run(cases.train, TOY, OPTIONS, tmp_path / "whole", world_size=1)
    for node, brought in enumerate((4, step)):
        shutil.copytree(
            tmp_path / f"whole/checkpoints/step-0000000{brought}",
            tmp_path / f"again/node{node}/resume",
        )
    if step == 4:
        (tmp_path / "again/node1/resume/state.safetensors").write_bytes(b"torn")
    with pytest.raises(EngineError, match=wanted) as caught:
        pool.run(cases.train_apart, TOY, OPTIONS, tmp_path / "again", world_size=2)
    # Nodes may report different sources of a damaged copy: one the store, the other the network.
    assert caught.value.reason == reason or not reason


def test_nodes_with_equal_copies_resume(pool: Pool, tmp_path: Path) -> None:
    pool.run(cases.train, TOY, OPTIONS, tmp_path / "whole", world_size=1)
    for node in (0, 1):
        shutil.copytree(
            tmp_path / "whole/checkpoints/step-00000004", tmp_path / f"again/node{node}/resume"
        )
    seen = pool.run(cases.train_apart, TOY, OPTIONS, tmp_path / "again", world_size=2)
    assert [one.steps_done for one in seen] == [6, 6]


def test_a_checkpoint_of_another_run_is_refused_with_the_differences(
    pool: Pool, tmp_path: Path
) -> None:
    pool.run(cases.train, TOY, OPTIONS, tmp_path / "whole", world_size=1)
    shutil.copytree(tmp_path / "whole/checkpoints/step-00000004", tmp_path / "again/resume")
    changed = OPTIONS | {"batch": {"size": 16, "micro_size": 2}, "seed": 5}
    with pytest.raises(EngineError, match="batch_size 14, now 16; seed 1337, now 5") as caught:
        pool.run(cases.train, TOY, changed, tmp_path / "again", world_size=1)
    assert caught.value.reason == "bad_spec"


def test_the_manifest_has_the_digest_that_the_event_names(pool: Pool, tmp_path: Path) -> None:
    import hashlib

    pool.run(cases.train, TOY, OPTIONS, tmp_path, world_size=1)
    for saved in events(tmp_path, "checkpoint"):
        folder = tmp_path / "checkpoints" / saved["folder"]
        manifest = (folder / "manifest.json").read_bytes()
        assert hashlib.sha256(manifest).hexdigest() == saved["sha256"]
        assert sum(path.stat().st_size for path in folder.iterdir()) == saved["bytes"]
        digest = hashlib.sha256((folder / "state.safetensors").read_bytes()).hexdigest()
        assert json.loads(manifest)["files"]["state.safetensors"]["sha256"] == digest
