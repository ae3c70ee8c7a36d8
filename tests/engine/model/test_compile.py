"""A model is compiled once for all micro-batches of a step, and trains as it does uncompiled."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from lockstep.domain.errors import LockstepError
from lockstep.domain.spec.reading import read_spec
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from tests.domain.documents import changed, train_document
from tests.engine import cases
from tests.engine.model import compile_cases
from tests.engine.model.compile_cases import Compiled
from tests.engine.reference import batches_of, distance, reference
from tests.engine.spool import events, records
from tests.engine.toy import Toy
from tests.harness.ranks import Pool

STEPS = 4


def spec(size: int, micro: int, **more: Any) -> dict[str, Any]:
    return {
        "batch": {"size": size, "micro_size": micro},
        "optimizer": cases.ADAMW,
        "clip_grad_norm": 0.5,
        "steps": STEPS,
        "compile": True,
        **more,
    }


def run(
    pool: Pool, folder: Path, world_size: int, options: dict[str, Any], toy: Toy | None = None
) -> list[Compiled]:
    found: list[Compiled] = pool.run(
        compile_cases.train, toy or Toy(), options, folder, world_size=world_size
    )
    return found


@pytest.mark.contract(44)
@pytest.mark.parametrize("world_size", [1, 2])
def test_synchronising_and_local_micro_batches_share_one_graph(
    pool: Pool, tmp_path: Path, world_size: int
) -> None:
    options = spec(12 * world_size, 4, eval={"every_steps": 2}, checkpoint={"every_steps": 3})
    found = run(pool, tmp_path, world_size, options)
    assert [one.graphs for one in found] == [[1] * STEPS] * world_size
    seen = [one.seen for one in found]
    expected = reference(
        Toy(),
        options,
        batches_of([one.micro_batches for one in seen], [12 * world_size] * STEPS, 4),
    )
    for one in seen:
        assert distance(one.weights, expected.weights) <= 1e-12


@pytest.mark.contract(44)
def test_ragged_micro_batches_are_compiled_once_more_for_all_sizes(
    pool: Pool, tmp_path: Path
) -> None:
    # Micro-batches of 4, 4, 3 samples in most steps; of 3 and 2 in the last one, which is smaller.
    toy, options = Toy(items=38), spec(11, 4, epochs=1) | {"steps": None}
    found = run(pool, tmp_path, 1, options, toy)
    assert [len(micro_batch) for micro_batch in found[0].seen.micro_batches] == [4, 4, 3] * 3 + [
        3,
        2,
    ]
    assert found[0].graphs == [2] * 4
    expected = reference(
        toy, options, batches_of([found[0].seen.micro_batches], [11, 11, 11, 5], 4)
    )
    assert distance(found[0].seen.weights, expected.weights) <= 1e-12


@pytest.mark.contract(44)
def test_an_empty_micro_batch_compiles_nothing(pool: Pool, tmp_path: Path) -> None:
    # Shards of 3, 2, 2 samples in micro-batches of one: two ranks have an empty one at the end.
    found = run(pool, tmp_path, 3, spec(7, 1))
    assert {tuple(one.graphs) for one in found} == {(1,) * STEPS}


@pytest.mark.contract(44)
@pytest.mark.parametrize("name", ["manual", "zero1", "fsdp"])
def test_every_strategy_compiles_once_with_recomputed_blocks_too(
    pool: Pool, tmp_path: Path, name: str
) -> None:
    toy, options = (
        Toy(blocks=3),
        spec(12, 2, activation_checkpointing=True, strategy={"name": name}),
    )
    found = run(pool, tmp_path, 2, options, toy)
    assert [one.graphs for one in found] == [[1] * STEPS] * 2
    expected = reference(
        toy, options, batches_of([one.seen.micro_batches for one in found], [12] * STEPS, 2)
    )
    for one in found:
        assert distance(one.seen.weights, expected.weights) <= 1e-12


@pytest.mark.contract(44)
def test_a_warm_up_that_is_compiled_too_fails_this_check(pool: Pool, tmp_path: Path) -> None:
    (found,) = pool.run(
        compile_cases.train,
        Toy(),
        spec(12, 4),
        tmp_path,
        compile_cases.masked_passes_compiled,
        world_size=1,
    )
    assert found.graphs[0] > 1


def test_a_compiled_run_saves_the_names_of_the_uncompiled_model(pool: Pool, tmp_path: Path) -> None:
    options = spec(12, 4, checkpoint={"every_steps": 2})
    (found,) = run(pool, tmp_path / "compiled", 1, options)
    shutil.copytree(tmp_path / "compiled/checkpoints/step-00000002", tmp_path / "plain/resume")
    (plain,) = pool.run(
        cases.train, Toy(), options | {"compile": False}, tmp_path / "plain", world_size=1
    )
    assert events(tmp_path / "plain", "resumed")[0]["step"] == 2
    assert distance(plain.weights, found.seen.weights) <= 1e-12


@pytest.mark.contract(44)
@pytest.mark.parametrize("checkpointed", [False, True], ids=["kept", "recomputed"])
def test_buckets_of_a_compiled_model_are_reduced_during_backward(
    pool: Pool, *, checkpointed: bool
) -> None:
    for (plain, before), (compiled, after) in pool.run(
        compile_cases.launched_early, checkpointed, world_size=2
    ):
        assert plain[:2] == compiled[:2] == [0, 0], "local micro-batches launch nothing"
        assert plain[2] >= 4
        assert compiled[2] >= 4
        assert distance(after, before) <= 1e-5


def test_a_model_that_cannot_be_compiled_is_refused_with_advice(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(
        EngineError, match=r"No working C\+\+ compiler found.*compile: false"
    ) as caught:
        pool.run(compile_cases.refuses, Toy(), spec(12, 4), tmp_path, world_size=1)
    assert caught.value.reason == "bad_spec"


def test_an_error_of_the_model_is_not_attributed_to_the_compiler(
    pool: Pool, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="boom"):
        pool.run(compile_cases.raises, Toy(), spec(12, 4), tmp_path, world_size=1)


@pytest.mark.parametrize(
    ("pointer", "strategy"),
    [
        ("/train/compile", {"name": "data_parallel"}),
        ("/train/strategy/bucket_cap_mb", {"name": "ddp", "bucket_cap_mb": 0.5}),
    ],
)
def test_code_that_torch_cannot_compile_is_refused_before_it_runs(
    pointer: str, strategy: dict[str, Any]
) -> None:
    document = changed(
        changed(train_document(), "/train/compile", True), "/train/strategy", strategy
    )
    with pytest.raises(LockstepError) as caught:
        read_spec(changed(document, "/resources/gpus", 1))
    assert pointer in [field.pointer for field in caught.value.fields]


# It compiles C++ for half a minute. The others run the same path with graphs unchanged.
@pytest.mark.drill
@pytest.mark.skipif(shutil.which("c++") is None, reason="NOT RUN: this machine has no C++ compiler")
@pytest.mark.filterwarnings("ignore")  # From the compiler.
def test_the_default_backend_trains_the_same_weights(tmp_path: Path) -> None:
    options = spec(6, 3, steps=2)
    compiled = cases.train(Ranks(), Toy(), options, tmp_path / "compiled")
    plain = cases.train(Ranks(), Toy(), options | {"compile": False}, tmp_path / "plain")
    assert distance(compiled.weights, plain.weights) <= 1e-12
    assert [
        line["train/loss"] for line in records(tmp_path / "compiled").values()
    ] == pytest.approx(
        [line["train/loss"] for line in records(tmp_path / "plain").values()], rel=1e-12
    )
