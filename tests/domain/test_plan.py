"""Batch plan, compared with a brute-force reference that assigns samples one by one."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from lockstep.domain import limits
from lockstep.domain.errors import LockstepError
from lockstep.domain.spec.batch import accumulation_steps, ceil_div, check_batch
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.reading import read_spec
from lockstep.domain.training.memory import MemoryForecast
from lockstep.domain.training.plan import BatchPlan, part, plan_of
from tests.domain.documents import changed, script_document, train_document

BATCH = st.integers(1, 300)
MICRO = st.integers(1, 70)
WORLD = st.integers(1, 20)


def dealt(size: int, parts: int) -> list[int]:
    """Return the number of items of each part if ``size`` items are assigned one at a time."""
    hands = [0] * parts
    for index in range(size):
        hands[index % parts] += 1
    return hands


def fewest_micro_batches(batch: int, micro: int, world: int) -> int:
    """Return the smallest K for which K micro-batches of at most ``micro`` hold every rank's shard."""
    return next(
        micro_batches
        for micro_batches in count(1)
        if max(dealt(batch, world)) <= micro_batches * micro
    )


def plan(batch: int, micro: int, world: int) -> BatchPlan:
    return BatchPlan(
        batch_size=batch,
        micro_batch_size=micro,
        accumulation_steps=accumulation_steps(batch, micro, world),
        world_size=world,
    )


@given(st.integers(0, 500), st.integers(1, 40))
def test_parts_are_contiguous_cover_everything_and_are_as_equal_as_cards_dealt(
    size: int, parts: int
) -> None:
    bounds = [part(size, parts, index) for index in range(parts)]
    assert [stop - start for start, stop in bounds] == dealt(size, parts)
    assert [index for start, stop in bounds for index in range(start, stop)] == list(range(size))


@given(BATCH, MICRO, WORLD)
@example(1, 1, 20)
@example(65, 8, 2)
def test_every_rank_runs_the_same_minimal_number_of_micro_batches(
    batch: int, micro: int, world: int
) -> None:
    expected = fewest_micro_batches(batch, micro, world)
    assert accumulation_steps(batch, micro, world) == expected
    assert {len(plan(batch, micro, world).micro_batches(rank)) for rank in range(world)} == {
        expected
    }


@given(BATCH, MICRO, WORLD)
@example(1, 1, 20)
def test_micro_batches_hold_every_sample_once_and_in_order(
    batch: int, micro: int, world: int
) -> None:
    micro_batches = [
        each for rank in range(world) for each in plan(batch, micro, world).micro_batches(rank)
    ]
    assert [index for start, stop in micro_batches for index in range(start, stop)] == list(
        range(batch)
    )


@given(BATCH, MICRO, WORLD)
def test_micro_batches_of_a_rank_differ_by_at_most_one_sample(
    batch: int, micro: int, world: int
) -> None:
    for rank in range(world):
        sizes = [stop - start for start, stop in plan(batch, micro, world).micro_batches(rank)]
        assert max(sizes) <= micro
        assert max(sizes) - min(sizes) <= 1


@given(BATCH, MICRO, WORLD)
def test_shards_of_ranks_differ_by_at_most_one_sample(batch: int, micro: int, world: int) -> None:
    shards = [
        sum(stop - start for start, stop in plan(batch, micro, world).micro_batches(rank))
        for rank in range(world)
    ]
    assert shards == dealt(batch, world)


@given(BATCH, st.integers(1, 300), MICRO, WORLD)
def test_a_smaller_last_batch_is_split_by_the_same_rule(
    batch: int, last: int, micro: int, world: int
) -> None:
    last = min(last, batch)
    whole, own = plan(batch, micro, world), plan(last, micro, world)
    assert [whole.micro_batches(rank, last) for rank in range(world)] == [
        own.micro_batches(rank) for rank in range(world)
    ]


@given(st.integers(0, 10**30), st.integers(1, 10**30))
def test_ceiling_division_is_exact_at_any_size(a: int, b: int) -> None:
    quotient = ceil_div(a, b)
    assert quotient * b >= a > (quotient - 1) * b


@pytest.mark.parametrize(
    ("batch", "micro", "world", "sentence"),
    [
        (64, 8, 2, "64 = 2 ranks × 8 samples × 4 accumulation steps"),
        (8, 8, 1, "8 = 1 rank × 8 samples × 1 accumulation step"),
        (6, 1, 2, "6 = 2 ranks × 1 sample × 3 accumulation steps"),
        (60, 8, 2, "60 over 2 ranks: shards of 30, each in 4 accumulation steps of 7 to 8 samples"),
        (
            65,
            8,
            2,
            "65 over 2 ranks: shards of 32 or 33, each in 5 accumulation steps of 6 to 7 samples",
        ),
        (
            3,
            1,
            2,
            "3 over 2 ranks: shards of 1 or 2, each in 2 accumulation steps of 0 to 1 samples",
        ),
    ],
)
def test_the_plan_in_words(batch: int, micro: int, world: int, sentence: str) -> None:
    assert plan(batch, micro, world).sentence() == sentence


@given(BATCH, MICRO, WORLD)
def test_the_sentence_never_claims_a_product_that_is_not_the_batch(
    batch: int, micro: int, world: int
) -> None:
    made = plan(batch, micro, world)
    left, equals, right = made.sentence().partition(" = ")
    if equals:
        ranks, samples, steps = (int(factor.split()[0]) for factor in right.split(" × "))
        assert ranks * samples * steps == batch == int(left)
    else:
        sizes = {stop - start for rank in range(world) for start, stop in made.micro_batches(rank)}
        assert len(sizes) > 1
        assert f"{min(sizes)} to {max(sizes)} samples" in made.sentence()


def test_an_unsettled_micro_batch_is_marked_and_has_no_plan() -> None:
    spec = JobSpec.model_validate(changed(train_document(), "/train/batch", {"size": 64}))
    unsettled = plan_of(spec, world_size=2)
    assert unsettled is not None
    assert unsettled.sentence() == "64 over 2 ranks; the first attempt chooses the micro-batch"
    assert (unsettled.micro_batch_size, unsettled.accumulation_steps) == (None, None)
    with pytest.raises(ValueError, match="not chosen"):
        unsettled.micro_batches(0)


def test_a_script_has_no_plan() -> None:
    assert plan_of(JobSpec.model_validate(script_document())) is None


def test_the_plan_of_a_spec_has_its_numbers() -> None:
    spec = read_spec(changed(train_document(), "/resources/gpus", 2))
    made = plan_of(spec)
    assert made is not None
    assert made.model_dump() == {
        "batch_size": 64, "micro_batch_size": 8, "accumulation_steps": 4, "world_size": 2, "tensor": 1,
        "pipeline": 1, "copies": 2, "blocks": None, "steps": 10, "memory": None,
    }  # fmt: skip


def test_a_micro_batch_is_at_most_the_shard() -> None:
    spec = read_spec(
        changed(changed(train_document(), "/resources/gpus", 3), "/train/batch/micro_size", 1000)
    )
    made = plan_of(spec)
    assert made is not None
    assert (made.micro_batch_size, made.accumulation_steps) == (22, 1)


@given(st.integers(1, 40), st.integers(1, 40))
@settings(deadline=None)
def test_a_batch_is_refused_exactly_when_some_rank_would_get_nothing(size: int, world: int) -> None:
    spec = JobSpec.model_validate(
        changed(changed(train_document(), "/train/batch/size", size), "/resources/gpus", world)
    )
    problems = list(check_batch(spec))
    assert bool(problems) == (min(dealt(size, world)) == 0)


def test_accumulation_beyond_the_limit_is_refused() -> None:
    batch = {"size": limits.ACCUMULATION_STEPS_MAX + 1, "micro_size": 1}
    with pytest.raises(LockstepError, match="more than 1000000 accumulation steps") as caught:
        read_spec(changed(train_document(), "/train/batch", batch))
    assert caught.value.fields[0].pointer == "/train/batch/micro_size"


@pytest.mark.parametrize(
    "field", ["batch_size", "micro_batch_size", "accumulation_steps", "world_size"]
)
def test_a_plan_of_nothing_is_no_plan(field: str) -> None:
    numbers = {
        "batch_size": 8,
        "micro_batch_size": 2,
        "accumulation_steps": 4,
        "world_size": 1,
        field: 0,
    }
    with pytest.raises(ValidationError):
        BatchPlan.model_validate(numbers)


def test_a_plan_can_be_settled_at_another_micro_batch_than_its_forecast() -> None:
    spec = JobSpec.model_validate(changed(train_document(), "/train/batch", {"size": 64}))
    open_plan = plan_of(spec, world_size=2)
    assert open_plan is not None
    found = open_plan.settled(5)
    assert (found.micro_batch_size, found.accumulation_steps) == (5, 7)
    parts = dict.fromkeys(MemoryForecast.parts(), 1)
    predicted = found.model_copy(update={"memory": MemoryForecast.model_validate(parts)})
    halved = predicted.halved()
    assert halved is not None
    assert (halved.micro_batch_size, halved.memory) == (3, None)


def test_auto_is_refused_where_no_rank_can_compute_alone() -> None:
    document = changed(
        changed(train_document(), "/train/batch", {"size": 64}), "/train/strategy", {"name": "fsdp"}
    )
    with pytest.raises(LockstepError) as caught:
        read_spec(document)
    assert [field.pointer for field in caught.value.fields] == ["/train/batch/micro_size"]
