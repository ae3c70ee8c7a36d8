"""All ranks hold the same model, at the start and later, or the run ends with a name."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.step.replicas import FIRST_STEPS, ReplicaCheck, fingerprints
from tests.engine import cases
from tests.engine.step import replica_cases
from tests.engine.toy import Toy
from tests.harness.ranks import Pool

OPTIONS: dict[str, Any] = {
    "batch": {"size": 12, "micro_size": 2},
    "optimizer": {"name": "sgd", "lr": 0.01},
    "steps": 25,
}


# --- at the start


STARTS = {
    "order": r"different models on the ranks: parameter 3 is b\.weight \(3, 3\) float32 on ranks 0, 1; c\.weight .* on rank 2",
    "shape": r"parameter 3 is b\.weight \(3, 3\) float32 on ranks 0, 1; b\.weight \(4, 3\) float32 on rank 2",
    "dtype": r"parameter 3 is .*b\.weight \(3, 3\) float64 on rank 2",
    "fewer": r"parameter 5 is c\.weight \(3, 3\) float32 on ranks 0, 1; nothing on rank 2",
    "frozen": r"b\.weight \(3, 3\) float32 frozen on rank 2",
    "value": r"not give the same values on all ranks: b\.weight differs, on rank 2 from the 2 others",
}


@pytest.mark.contract(22)
@pytest.mark.parametrize("kind", STARTS)
def test_ranks_that_start_with_different_models_are_refused_by_name(pool: Pool, kind: str) -> None:
    with pytest.raises(EngineError, match=STARTS[kind]) as caught:
        pool.run(replica_cases.differing, kind, 2, world_size=3)
    assert caught.value.reason == "bad_spec"


@pytest.mark.contract(22)
def test_equal_models_are_accepted(pool: Pool) -> None:
    pool.run(replica_cases.differing, "none", 0, world_size=4)


SQUARE = Toy(width=3, double=False)


@pytest.mark.contract(22)
def test_a_run_detects_a_different_order_of_parameters(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(
        EngineError, match=r"model\(\) builds different models on the ranks: parameter 2 is"
    ):
        pool.run(
            cases.train,
            SQUARE,
            OPTIONS,
            tmp_path,
            replica_cases.swapped_on_the_last_rank,
            world_size=2,
        )


@pytest.mark.contract(22)
def test_ddp_alone_mixes_up_layers_of_equal_shapes(pool: Pool) -> None:
    gradients = pool.run(replica_cases.under_ddp_alone, world_size=2)
    assert torch.equal(gradients[0]["b.weight"], gradients[1]["c.weight"])
    assert not torch.equal(gradients[0]["b.weight"], gradients[1]["b.weight"])


# --- during a run


@pytest.mark.contract(23)
@pytest.mark.parametrize(
    ("world_size", "ranks", "double"),
    [(2, "between rank 0 and rank 1", False), (3, "on rank 1 from the 2 others", True)],
)
def test_one_bit_on_one_rank_is_reported_by_parameter_and_rank(
    pool: Pool, tmp_path: Path, world_size: int, ranks: str, double: bool
) -> None:
    toy_run = Toy(double=double)
    with pytest.raises(EngineError) as caught:
        pool.run(
            cases.train,
            toy_run,
            OPTIONS,
            tmp_path,
            replica_cases.nudged_at_13,
            world_size=world_size,
        )
    assert caught.value.reason == "diverged"
    # One changed number changes the others in the steps until the next comparison, in the order of
    # the gradient's backward.
    assert str(caught.value).startswith(
        "after step 20 the model is no longer the same on all ranks: "
    )
    assert str(caught.value).endswith(f"differs, {ranks}")


@pytest.mark.contract(23)
def test_differing_parameters_are_not_saved(pool: Pool, tmp_path: Path) -> None:
    options = OPTIONS | {"checkpoint": {"every_steps": 2}}
    with pytest.raises(
        EngineError, match=r"after step 4 .*: hidden\.bias differs, on rank 0 from the 2 others"
    ):
        pool.run(
            cases.train,
            Toy(),
            options,
            tmp_path,
            replica_cases.nudged_before_the_checkpoint,
            world_size=3,
        )
    assert [folder.name for folder in (tmp_path / "checkpoints").iterdir()] == ["step-00000002"]


@pytest.mark.contract(23)
def test_without_the_comparison_the_difference_goes_unnoticed(pool: Pool, tmp_path: Path) -> None:
    one, other = pool.run(
        cases.train, Toy(), OPTIONS, tmp_path, replica_cases.never_compared, world_size=2
    )
    assert one.steps_done == other.steps_done == 25
    assert any(not torch.equal(value, other.weights[name]) for name, value in one.weights.items())


FORMATS = [
    torch.float64,
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.int8,
    torch.bool,
    torch.complex64,
]
SHAPES = [(), (1,), (3,), (8,), (5, 3), (4, 6), (2, 3, 5), (7, 2, 2, 2), (1, 1)]


@pytest.mark.contract(23)
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_bit_of_any_number_changes_the_fingerprint(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(shape, generator=generator).to(dtype)
    before = fingerprints([values])
    bits = values.reshape(-1).view(torch.uint8)
    for place in range(len(bits)):
        for bit in range(1 if dtype == torch.bool else 8):
            bits[place] ^= 1 << bit
            assert not torch.equal(fingerprints([bits.view(dtype).view(shape)]), before)
            bits[place] ^= 1 << bit


@pytest.mark.contract(23)
def test_a_fingerprint_does_not_depend_on_the_place_in_memory() -> None:
    values = torch.randn(4, 3, 2, 2)
    spread = torch.zeros(4, 3, 2, 4)[..., ::2].copy_(values)
    shifted = torch.zeros(49)[1:].view(4, 3, 2, 2).copy_(values)
    found = fingerprints([values, values.to(memory_format=torch.channels_last), spread, shifted])
    assert len(set(found[:3].tolist())) == 1
    assert fingerprints([torch.zeros(0, 4), torch.zeros(0)]).tolist() == [0, 0]


@pytest.mark.contract(23)
def test_rows_that_change_places_change_the_fingerprint() -> None:
    values = torch.randn(6, 4)
    assert not torch.equal(fingerprints([values]), fingerprints([values.flip(0)]))


@pytest.mark.contract(23)
def test_ranks_compare_at_agreed_steps_within_half_a_percent(pool: Pool) -> None:
    # The second rank has another clock; that of rank 0 decides for both.
    one, other = pool.run(replica_cases.intervals, [1.0, 5.0], [0.0975, 3.0], world_size=2)
    assert one == other
    assert one[:2] == [FIRST_STEPS, 2 * FIRST_STEPS]
    gaps = {after - before for before, after in itertools.pairwise(one[1:])}
    assert gaps == {20}, "0.0975 s in every 20 steps of 1 s is just below half a percent"


@pytest.mark.contract(23)
def test_a_cheap_comparison_runs_after_every_step(pool: Pool) -> None:
    found = pool.run(replica_cases.intervals, [1.0, 1.0], [0.001, 0.001], world_size=2)[0]
    assert found == [10, *range(20, 301)]


@pytest.mark.contract(23)
def test_a_single_rank_has_nothing_to_compare() -> None:
    check = ReplicaCheck(replica_cases.net(), Ranks())
    check.at_start()
    assert not any(check.due(step) for step in range(1, 100))
    check.compare(100)
