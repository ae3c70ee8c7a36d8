"""Gradient and weights equal those of one process that ran the whole batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.engine.runtime.errors import EngineError
from tests.engine import cases, mutants
from tests.engine.cases import Seen
from tests.engine.reference import Expected, batches_of, distance, reference
from tests.engine.toy import Toy, initial
from tests.harness.ranks import Pool

SGD = {"name": "sgd", "lr": 0.1}


def spec(size: int, micro: int, **more: Any) -> dict[str, Any]:
    return {
        "batch": {"size": size, "micro_size": micro},
        "optimizer": SGD,
        "clip_grad_norm": None,
        **more,
    }


def sizes(options: dict[str, Any], toy: Toy) -> list[int]:
    """Return the number of samples of each batch of a run."""
    size = options["batch"]["size"]
    if "steps" in options:
        return [size] * options["steps"]
    total = options["epochs"] * toy.items
    return [min(size, total - start) for start in range(0, total, size)]


def run(
    pool: Pool, folder: Path, toy: Toy, options: dict[str, Any], world_size: int, mutate: Any = None
) -> tuple[list[Seen], Expected]:
    """Run the engine, and the reference on the same batches."""
    seen = pool.run(cases.train, toy, options, folder, mutate, world_size=world_size)
    batches = batches_of(
        [one.micro_batches for one in seen], sizes(options, toy), options["batch"]["micro_size"]
    )
    return seen, reference(toy, options, batches)


def check_gradients(seen: list[Seen], expected: Expected, tolerance: float) -> None:
    for one in seen:
        assert len(one.gradients) == len(expected.gradients)
        for found, wanted in zip(one.gradients, expected.gradients, strict=True):
            assert distance(found, wanted) <= tolerance


def check_weights(seen: list[Seen], expected: Expected, tolerance: float) -> None:
    for one in seen:
        assert distance(one.weights, expected.weights) <= tolerance


KINDS = [
    (row % 2 == column % 2, weigh, masked)
    for row, weigh in enumerate(("tokens", "samples", "terms"))
    for column, masked in enumerate(("some", "odd", "some", "all"))
]
"""Formats, weights and masks, of which every pair occurs. The engine checks the loss of each once."""


@pytest.mark.contract(1)
@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    world_size=st.integers(1, 4),
    data=st.data(),
    items=st.integers(1, 60),
    micro=st.integers(1, 9),
    kind=st.sampled_from(KINDS),
)
def test_the_gradient_equals_that_of_the_whole_batch_for_any_split(
    pool: Pool,
    tmp_path: Path,
    world_size: int,
    data: st.DataObject,
    items: int,
    micro: int,
    kind: tuple[bool, str, str],
) -> None:
    size = data.draw(st.integers(world_size, 30), label="size")
    double, weigh, masked = kind
    toy = Toy(items=items, double=double, weigh=weigh, masked=masked)
    seen, expected = run(pool, tmp_path / "run", toy, spec(size, micro, steps=1), world_size)
    check_gradients(seen, expected, 1e-12 if double else 1e-5)


@pytest.mark.contract(1)
@pytest.mark.parametrize("mutant", [mutants.mean_of_means, mutants.divide_by_nominal_micro_batches])
def test_a_mean_of_means_fails_this_check(pool: Pool, tmp_path: Path, mutant: Any) -> None:
    seen, expected = run(pool, tmp_path, Toy(), spec(23, 3, steps=1), 2, mutant)
    with pytest.raises(AssertionError):
        check_gradients(seen, expected, 1e-5)


LONG = {
    "steps": 50,
    "schedule": {"name": "cosine", "warmup_steps": 5, "min_lr": 1e-3},
    "clip_grad_norm": 0.5,
}
OPTIMIZERS = {
    "sgd": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3},
    "adamw": cases.ADAMW,
}


@pytest.mark.contract(2)
@pytest.mark.parametrize(
    ("name", "double", "world_size", "micro"),
    [
        # Each optimizer occurs in each precision.
        ("sgd", True, 1, 12),
        ("adamw", False, 1, 5),
        ("adamw", True, 2, 3),
        ("sgd", True, 3, 2),
        ("sgd", False, 4, 1),
        ("adamw", True, 4, 3),
    ],
)
def test_fifty_steps_end_at_the_weights_of_the_reference(
    pool: Pool, tmp_path: Path, name: str, double: bool, world_size: int, micro: int
) -> None:
    """Shorter runs on one to four ranks: ``tests.engine.step.test_logged_numbers``."""
    options = spec(12, micro, **LONG) | {"optimizer": OPTIMIZERS[name]}
    seen, expected = run(pool, tmp_path, Toy(double=double), options, world_size)
    assert min(expected.norms) < 0.5 < max(expected.norms), (
        "clipping must matter in some steps and not in others"
    )
    check_weights(seen, expected, 1e-12 if double else 1e-5)


@pytest.mark.contract(3)
@pytest.mark.parametrize("weigh", ["tokens", "samples", "terms"])
def test_the_mean_is_weighted_by_the_count_of_the_task(
    pool: Pool, tmp_path: Path, weigh: str
) -> None:
    seen, expected = run(pool, tmp_path, Toy(weigh=weigh), spec(17, 2, steps=4), 3)
    check_gradients(seen, expected, 1e-12)
    assert seen[0].gradients[0].keys() == expected.gradients[0].keys()


@pytest.mark.contract(3)
def test_the_weightings_differ(pool: Pool, tmp_path: Path) -> None:
    by_samples, _ = run(pool, tmp_path / "a", Toy(weigh="samples"), spec(17, 2, steps=1), 3)
    _, by_tokens = run(pool, tmp_path / "b", Toy(weigh="tokens"), spec(17, 2, steps=1), 3)
    with pytest.raises(AssertionError):
        check_gradients(by_samples, by_tokens, 1e-5)


def ragged(pool: Pool, folder: Path, mutant: Any = None) -> tuple[list[Seen], Expected]:
    """Two epochs of 21 samples in batches of 8: five full batches and one of 2, over 2 ranks."""
    return run(
        pool, folder, Toy(items=21, weigh="samples", masked="some"), spec(8, 2, epochs=2), 2, mutant
    )


@pytest.mark.contract(4)
def test_the_smaller_last_batch_is_the_mean_over_its_items(pool: Pool, tmp_path: Path) -> None:
    seen, expected = ragged(pool, tmp_path)
    assert len(expected.gradients) == 6
    assert sum(len(micro_batch) for one in seen for micro_batch in one.micro_batches) == 42
    check_gradients(seen, expected, 1e-12)


@pytest.mark.contract(4)
def test_division_by_k_fails_this_check_in_the_last_batch(pool: Pool, tmp_path: Path) -> None:
    seen, expected = ragged(pool, tmp_path, mutants.divide_by_nominal_micro_batches)
    full = [Seen(gradients=one.gradients[:1]) for one in seen]
    check_gradients(full, Expected(gradients=expected.gradients[:1]), 1e-12)
    with pytest.raises(AssertionError):
        check_gradients(seen, expected, 1e-2)


@pytest.mark.contract(5)
def test_a_micro_batch_and_a_rank_of_weight_zero_add_nothing(pool: Pool, tmp_path: Path) -> None:
    # Micro-batches of one: every second one has no weight, and with 4 samples on 4 ranks whole
    # ranks have none.
    seen, expected = run(pool, tmp_path, Toy(masked="odd"), spec(4, 1, steps=8), 4)
    counts = [sum(1 for one in seen if one.micro_batches[step][0] % 2) for step in range(8)]
    assert {1, 2} & set(counts), "some ranks must have had no weight"
    check_gradients(seen, expected, 1e-12)
    check_weights(seen, expected, 1e-12)


@pytest.mark.contract(5)
def test_a_whole_batch_of_weight_zero_updates_nothing(pool: Pool, tmp_path: Path) -> None:
    from tests.engine.spool import records

    options = spec(4, 1, steps=6, schedule={"name": "linear"}) | {"optimizer": OPTIMIZERS["adamw"]}
    toy = Toy(masked="all")
    seen, _ = run(pool, tmp_path, toy, options, 2)
    for one in seen:
        assert one.steps_done == 6
        assert one.gradients == []
        assert distance(one.weights, initial(toy).state_dict()) == 0
    lines = records(tmp_path)
    assert [step for step in lines if "train/lr" in lines[step]] == [1, 2, 3, 4, 5, 6]
    assert all("train/loss" not in values for values in lines.values())
    assert [lines[step]["train/lr"] for step in lines] == pytest.approx(
        [1e-2 * (1 - i / 5) for i in range(6)]
    )


@pytest.mark.contract(5)
def test_a_hundred_batches_without_weight_end_the_run_on_every_rank(
    pool: Pool, tmp_path: Path
) -> None:
    with pytest.raises(
        EngineError, match=r"causal_lm: weight\(\) returned 0 for 100 batches in a row"
    ):
        run(pool, tmp_path, Toy(masked="all"), spec(4, 1, steps=200), 2)


@pytest.mark.contract(5)
def test_batches_without_weight_change_neither_momentum_nor_weights(
    pool: Pool, tmp_path: Path
) -> None:
    options = spec(2, 1, steps=30) | {"optimizer": OPTIMIZERS["sgd"]}
    seen, expected = run(pool, tmp_path, Toy(masked="odd"), options, 2)
    assert None in expected.losses
    assert len(expected.gradients) == sum(loss is not None for loss in expected.losses) > 5
    check_weights(seen, expected, 1e-12)


@pytest.mark.contract(6)
@pytest.mark.parametrize("world_size", [2, 4])
def test_a_rank_with_an_empty_micro_batch_keeps_its_buffers(
    pool: Pool, tmp_path: Path, world_size: int
) -> None:
    # World size + 1 samples, one at a time: rank 0 runs two, the others one and an empty
    # micro-batch.
    options = spec(world_size + 1, 1, steps=5)
    toy = Toy(buffer=True)
    seen, expected = run(pool, tmp_path, toy, options, world_size)
    assert [len(one.micro_batches) for one in seen] == [10] * world_size
    assert [float(one.weights["calls"]) for one in seen] == [10.0] + [5.0] * (world_size - 1)
    assert all(one.left_over == [] for one in seen)
    check_gradients(seen, expected, 1e-12)


@pytest.mark.parametrize("world_size", [1, 3])
def test_the_penalty_counts_once_per_step(pool: Pool, tmp_path: Path, world_size: int) -> None:
    toy = Toy(penalty=0.3)
    seen, expected = run(pool, tmp_path / "right", toy, spec(9, 2, steps=3), world_size)
    check_gradients(seen, expected, 1e-12)
    wrong, expected = run(
        pool,
        tmp_path / "wrong",
        toy,
        spec(9, 2, steps=3),
        world_size,
        mutants.penalty_in_every_micro_batch,
    )
    with pytest.raises(AssertionError):
        check_gradients(wrong, expected, 1e-5)


@pytest.mark.contract(6)
def test_ranks_without_a_sample_count_the_penalty(pool: Pool, tmp_path: Path) -> None:
    seen, expected = run(pool, tmp_path, Toy(penalty=0.3, items=18), spec(16, 4, epochs=1), 4)
    check_gradients(seen, expected, 1e-12)
    check_weights(seen, expected, 1e-12)
