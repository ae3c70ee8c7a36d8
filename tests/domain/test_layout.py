"""Places of ranks in a layout, by enumeration, and the refusals of layouts that cannot be."""

from __future__ import annotations

import contextlib
from itertools import product
from typing import Any

import pytest
from pydantic import ValidationError

from lockstep.domain.spec.batch import check_batch
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.parallel import check_parallel
from lockstep.domain.training.layout import RankLayout, RankPlace
from lockstep.domain.training.plan import BatchPlan, plan_of
from tests.domain.documents import changed, train_document

LAYOUTS = list(product((1, 2, 3), (1, 2, 4), (1, 2)))


@pytest.mark.parametrize(("copies", "tensor", "pipeline"), LAYOUTS)
def test_every_rank_has_its_place_and_groups(copies: int, tensor: int, pipeline: int) -> None:
    layout = RankLayout.of(copies * tensor * pipeline, tensor, pipeline)
    # Stages are outermost, tensor ranks neighbours.
    places = [RankPlace(*each) for each in product(range(pipeline), range(copies), range(tensor))]
    assert [layout.place(rank) for rank in range(layout.world_size)] == places
    assert [layout.rank(place) for place in places] == list(range(layout.world_size))
    for groups, same in (
        (layout.tensor_groups(), lambda place: (place.stage, place.copy)),
        (layout.data_groups(), lambda place: (place.stage, place.tensor)),
        (layout.stage_groups(), lambda place: place.stage),
        (layout.copy_groups(), lambda place: place.copy),
        (layout.lines(), lambda place: (place.copy, place.tensor)),
    ):
        assert sorted(rank for group in groups for rank in group) == list(range(len(places)))
        for group in groups:
            assert [
                r for r, place in enumerate(places) if same(place) == same(places[group[0]])
            ] == [*group]
    counting = [places[rank].copy for rank in range(len(places)) if layout.counts(rank)]
    assert counting == list(range(copies)), "one rank of each copy"
    ends = [places[rank] for rank in range(len(places)) if layout.counts_losses(rank)]
    assert ends == [RankPlace(pipeline - 1, copy, 0) for copy in range(copies)]
    assert layout.lines((0,)) == [(rank,) for rank in layout.stage_groups()[0]]


@pytest.mark.parametrize(("world_size", "tensor"), [(3, 2), (1, 2), (6, 4)])
def test_an_incomplete_copy_is_no_layout(world_size: int, tensor: int) -> None:
    with pytest.raises(
        ValueError, match=f"{world_size} ranks are no multiple of .* \\({tensor}\\)"
    ):
        RankLayout.of(world_size, tensor)


@pytest.mark.parametrize(("copies", "tensor"), [(1, 2), (2, 2), (3, 4)])
def test_copies_divide_the_batch_as_so_many_ranks(copies: int, tensor: int) -> None:
    cut, whole = (
        BatchPlan(
            batch_size=7,
            micro_batch_size=2,
            accumulation_steps=1,
            world_size=copies * each,
            tensor=each,
        ).settled(2)
        for each in (tensor, 1)
    )
    assert [cut.micro_batches(copy) for copy in range(copies)] == [
        whole.micro_batches(rank) for rank in range(copies)
    ]
    assert cut.accumulation_steps == whole.accumulation_steps
    assert cut.sentence().endswith(f" on {copies * tensor} ranks, tensor {tensor}")


def spec(resources: dict[str, Any], **train: Any) -> JobSpec:
    document = changed(train_document(), "/resources", resources)
    for name, value in train.items():
        document = changed(document, f"/train/{name}", value)
    return JobSpec.model_validate(document)


def refusals(resources: dict[str, Any], **train: Any) -> list[str]:
    found = check_parallel(spec(resources, **train))
    return [f"{each.pointer}: {each.message} → {each.next_step}" for each in found]


TWO = {"tensor": 2}
STAGES: dict[str, Any] = {"parallel": {"pipeline": 2}}


@pytest.mark.parametrize(
    ("resources", "train", "words"),
    [
        ({"gpus": 6}, {"parallel": {"tensor": 4}}, "(4), so that each copy of the model is whole, got 6 → request 4 or 8"),
        ({"gpus": 6}, {"parallel": {"tensor": 2, "pipeline": 2}}, "request 4 or 8"),
        ({"gpus": 1}, {"parallel": TWO}, "got 1 → request 2 gpus"),
        ({"gpus": {"min": 3, "max": 4}}, {"parallel": TWO}, "/resources/gpus/min: expected"),
        ({"gpus": {"min": 2, "max": 5}}, {"parallel": TWO}, "/resources/gpus/max: expected"),
        ({"gpus": 6, "nodes": 2}, {"parallel": TWO}, "a tensor group stays inside one node: expected a multiple of tensor (2) per node, and 6 gpus on 2 nodes are 3 each → request 4 or 8 gpus"),
        ({"gpus": 2}, {"parallel": TWO, "strategy": {"name": "zero1"}}, "zero1 needs the whole model"),
        ({"gpus": 2}, {"parallel": TWO, "strategy": {"compression": "powersgd"}, "steps": 300}, "depends on tensor"),
        ({"gpus": 2}, {"parallel": TWO, "compile": True}, "/train/compile: "),
        ({"gpus": 2}, {"parallel": TWO, "batch": {"size": 8}}, "/train/batch/micro_size: "),
        ({"gpus": 3}, {"parallel": {"tensor": 3}}, "cuts heads (4) of causal_lm into 3 unequal parts"),
        ({"gpus": 2}, {"parallel": TWO, "task": "image_classification"}, "has no tensor plan"),
        ({"gpus": 3}, STAGES, "model is whole, got 3 → request 2 or 4 gpus"),
        ({"gpus": 2}, STAGES | {"strategy": {"name": "zero1"}}, "zero1 is not available yet"),
        ({"gpus": 2}, STAGES | {"strategy": {"name": "data_parallel"}}, "needs the whole model"),
        ({"gpus": 2}, STAGES | {"strategy": {"static_graph": True}}, "/train/strategy/static_"),
        ({"gpus": 2}, STAGES | {"strategy": {"compression": "powersgd"}, "steps": 300}, "/compr"),
        ({"gpus": 2}, STAGES | {"compile": True}, "/train/compile: "),
        ({"gpus": 2}, STAGES | {"task": "image_classification"}, "has no blocks"),
        ({"gpus": 3}, {"parallel": {"pipeline": 3}, "task_args": {"layers": 2}}, "has 2 (layers)"),
    ],
)  # fmt: skip
def test_a_cut_that_cannot_be_is_refused_with_the_numbers(
    resources: dict[str, Any], train: dict[str, Any], words: str
) -> None:
    found = refusals(resources, **train)
    assert any(words in each for each in found), found


def test_both_cuts_refuse_a_field_once() -> None:
    found = refusals(
        {"gpus": 4},
        parallel={"tensor": 2, "pipeline": 2},
        compile=True,
        strategy={"name": "local_sgd", "sync_every_steps": 2},
    )
    assert [each.partition(":")[0] for each in found] == ["/train/strategy/name", "/train/compile"]


@pytest.mark.parametrize("nodes", [None, 2, 3])
@pytest.mark.parametrize("pipeline", [None, 3])
@pytest.mark.parametrize("shard", [None, 2])
def test_refused_numbers_of_devices_name_the_nearest_that_are_not(
    nodes: int | None, pipeline: int | None, shard: int | None
) -> None:
    """By trying every number on its own."""
    train: dict[str, Any] = {"parallel": {"tensor": 2, "pipeline": pipeline}, "batch/size": 8}
    if shard is not None:
        train["strategy"] = {"name": "fsdp", "shard": shard}
    found: dict[int, list[str]] = {}
    for gpus in range(1, 49):
        with contextlib.suppress(ValidationError):  # No multiple of nodes, or of shard.
            own = spec({"gpus": gpus, "nodes": nodes}, **train)
            found[gpus] = [
                each.next_step or ""
                for each in (*check_parallel(own), *check_batch(own))
                if each.pointer in ("/resources/gpus", "/train/batch/size")
            ]
    accepted = [gpus for gpus, refusals in found.items() if not refusals]
    assert accepted
    for gpus in accepted:
        each = gpus // (nodes or 1)  # Ranks of one node, which are neighbours.
        groups = RankLayout.of(gpus, 2, pipeline or 1).tensor_groups()
        assert all(len({rank // each for rank in group}) == 1 for group in groups)
    for gpus, (first, *_) in ((gpus, each) for gpus, each in found.items() if each):
        if gpus > 8 * 2 * (pipeline or 1):
            continue  # Refused for the batch.
        nearest = [each for each in accepted if each < gpus][-1:]
        nearest += [each for each in accepted if each > gpus][:1]
        assert first == f"request {' or '.join(map(str, nearest))} gpus"


@pytest.mark.parametrize(
    ("resources", "train"),
    [
        ({"gpus": 3}, {}),
        ({"gpus": 3}, {"parallel": {"tensor": 1, "pipeline": 1}}),
        ({"gpus": 4}, {"parallel": TWO}),
        ({"gpus": 8, "nodes": 2}, {"parallel": {"tensor": 4}, "strategy": {"name": "fsdp"}}),
        ({"gpus": 2}, {"parallel": TWO, "strategy": {"compression": "bf16"}}),
        ({"gpus": 8}, {"parallel": TWO, "strategy": {"name": "fsdp", "shard": 2}}),
        ({"gpus": 4}, {"parallel": TWO, "strategy": {"name": "fsdp", "shard": 4}}),
        ({"gpus": 4}, STAGES | {"strategy": {"name": "manual"}}),
        ({"gpus": 2}, STAGES | {"strategy": {"compression": "bf16"}}),
    ],
)
def test_other_layouts_are_accepted(resources: dict[str, Any], train: dict[str, Any]) -> None:
    assert refusals(resources, **train) == []


def test_copies_that_do_not_divide_into_shards_are_refused() -> None:
    unit = 2
    for copies in range(1, 9):
        train = {
            "parallel": TWO,
            "strategy": {"name": "fsdp", "shard": 3},
            "batch/size": 64,
        }
        if copies <= 3 or copies % 3 == 0:
            found = refusals({"gpus": copies * unit}, **train)
            assert not any("/resources/gpus" in each for each in found)
            continue
        with pytest.raises(ValidationError) as seen:
            refusals({"gpus": copies * unit}, **train)
        error = str(seen.value.errors()[0])
        assert f"is 3, and {copies} copies on {copies * unit} ranks ({unit} each)" in error
        below = copies // 3 * 3
        assert f"request {below * unit} or {(below + 3) * unit} gpus" in error


def test_stages_choose_their_micro_batch() -> None:
    for parallel in ({"pipeline": 2}, {"tensor": 2, "pipeline": 2}):
        assert refusals({"gpus": 4}, parallel=parallel, batch={"size": 8}) == []


def test_the_copies_of_the_model_share_the_batch() -> None:
    plan = plan_of(spec({"gpus": 4}, parallel=TWO))
    assert plan is not None
    assert (
        plan.sentence() == "64 = 2 copies × 8 samples × 4 accumulation steps on 4 ranks, tensor 2"
    )


@pytest.mark.parametrize(
    ("gpus", "parallel", "batch", "ends"),
    [
        (8, {"tensor": 2, "pipeline": 2}, 64, ", tensor 2, pipeline 2 (3, 2 blocks), bubble 20%"),
        (4, {"pipeline": 4}, 64, ", pipeline 4 (2, 1, 1, 1 blocks), bubble 27%: "
         "12 accumulation steps give 20%"),
        (8, {"pipeline": 4}, 16, ", pipeline 4 (2, 1, 1, 1 blocks), bubble 75%: "
         "the batch allows 8 accumulation steps"),
    ],
)  # fmt: skip
def test_the_plan_shows_the_bubble_of_a_pipeline(
    gpus: int, parallel: dict[str, int], batch: int, ends: str
) -> None:
    layers = {"batch/size": batch, "task_args": {"layers": 5}}
    plan = plan_of(spec({"gpus": gpus}, parallel=parallel, **layers))
    assert plan is not None
    assert plan.sentence().endswith(f" on {gpus} ranks{ends}")
    auto = plan.model_copy(update={"micro_batch_size": None, "accumulation_steps": None})
    cut = ends.partition(", bubble")[0]
    copies = "2 copies" if plan.copies == 2 else "1 copy"
    assert auto.sentence() == (
        f"{batch} over {copies} on {gpus} ranks{cut}; the first attempt chooses the micro-batch"
    )
