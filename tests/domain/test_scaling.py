"""Findings about a job that was run on several numbers of devices."""

from __future__ import annotations

import pytest

from lockstep.domain.spec.strategy import Strategy
from lockstep.domain.training.scaling import ScalingRun, advice, best_bucket, compared, measured


def run(world_size: int, step: float, bucket: float | None = None, **parts: float) -> ScalingRun:
    """Return a run whose parts are fractions of its step; the remainder is computing."""
    rest = 1 - sum(parts.values())
    fractions = {"forward": rest / 3, "backward": rest * 2 / 3, **parts}
    return ScalingRun(
        world_size,
        bucket,
        step,
        64 / step,
        {part: step * fraction for part, fraction in fractions.items()},
    )


def test_medians_are_of_training_alone() -> None:
    steps = [
        {"data": 0.1, "forward": 0.3, "checkpoint": 5.0},
        {"data": 0.2, "forward": 0.2},
        {"data": 0.1, "forward": 0.5},
    ]
    found = measured(2, steps, batch_size=64)
    assert found.step_seconds == pytest.approx(0.4)
    assert found.samples_per_second == pytest.approx(160)
    assert found.parts == {"data": 0.1, "forward": 0.3}
    assert found.share("data") == pytest.approx(0.25)


def test_a_run_without_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="no step was measured"):
        measured(1, [], batch_size=8)


def test_efficiency_is_against_the_fewest_ranks() -> None:
    rows = compared([run(4, 0.5), run(2, 0.8)])
    assert [
        (row.measured.world_size, round(row.speedup, 3), round(row.efficiency, 3)) for row in rows
    ] == [
        (4, 1.6, 0.8),
        (2, 1.0, 1.0),
    ]


@pytest.mark.parametrize(
    ("runs", "sentence"),
    [
        (
            [run(1, 1.0), run(2, 0.9, data=0.41)],
            "data-bound: on 2 ranks 41% of the step waits for data; raise train.load",
        ),
        (
            [run(1, 1.0), run(2, 0.7, communication=0.3)],
            "communication-bound: on 2 ranks 30% of the step waits",
        ),
        (
            [run(1, 1.0, optimizer=0.4)],
            "update-bound: on 1 rank the optimizer takes 40% of the step",
        ),
        (
            [run(1, 1.0), run(2, 0.52)],
            "compute-bound, the goal: on 2 ranks 100% of the step computes",
        ),
        (
            [run(1, 1.0), run(4, 0.6)],
            "on 4 ranks the computation takes 2.4 times as long per sample as on the fewest",
        ),
        # A slow rank makes the others wait. That is not a fault of the network.
        (
            [run(1, 1.0), run(2, 1.2, communication=0.2)],
            "on 2 ranks the computation takes 1.9 times as long",
        ),
        (
            [run(1, 1.0), run(2, 0.58, other=0.1)],
            "on 2 ranks 86% of linear, without a dominant part of the step",
        ),
    ],
)
def test_one_sentence_names_the_bottleneck(runs: list[ScalingRun], sentence: str) -> None:
    assert advice(compared(runs), Strategy()).startswith(sentence)


WAITING = [run(1, 1.0), run(2, 0.7, communication=0.3)]
UPDATING = [run(1, 1.0), run(2, 0.7, optimizer=0.4)]
SLOWER = [run(1, 1.0), run(2, 1.2, communication=0.1)]
LEFT = "use fewer ranks or a larger batch.size"
BUCKETS = "try --buckets"
SQUEEZE = "train.strategy.compression: bf16"


@pytest.mark.parametrize(
    ("strategy", "swept", "options"),
    [
        ({}, False, f"{LEFT}, {BUCKETS}, or {SQUEEZE}"),
        ({}, True, f"{LEFT}, or {SQUEEZE}"),
        ({"compression": "fp16"}, False, f"{LEFT}, or {BUCKETS}"),
        ({"compression": "powersgd"}, True, LEFT),
        ({"name": "zero1"}, False, f"{LEFT}, or {BUCKETS}"),
        ({"name": "zero1"}, True, LEFT),
        ({"name": "manual"}, False, LEFT),
        ({"name": "fsdp"}, False, LEFT),
        ({"name": "local_sgd", "sync_every_steps": 2}, False, LEFT),
    ],
)
def test_advice_for_waiting_applies_to_the_strategy(
    strategy: dict[str, object], swept: bool, options: str
) -> None:
    said = advice(compared(WAITING), Strategy.model_validate(strategy), swept=swept)
    assert (
        said
        == f"communication-bound: on 2 ranks 30% of the step waits for the other ranks; {options}"
    )


@pytest.mark.parametrize(
    ("strategy", "shares"),
    [
        ({}, True),
        ({"name": "manual"}, True),
        ({"bucket_cap_mb": 50.0, "static_graph": True}, True),
        ({"compression": "bf16"}, False),
        ({"name": "zero1"}, False),
        ({"name": "fsdp"}, False),
        ({"name": "diloco", "sync_every_steps": 2}, False),
    ],
)
def test_zero1_is_recommended_where_it_can_be_set_and_changes_something(
    strategy: dict[str, object], shares: bool
) -> None:
    said = advice(compared(UPDATING), Strategy.model_validate(strategy))
    assert said.startswith(
        "update-bound: on 2 ranks the optimizer takes 40% of the step; a larger batch.size needs "
        "fewer"
    )
    assert ("train.strategy.name: zero1 shares them" in said) is shares


def test_one_rank_gets_no_advice_on_shared_updates() -> None:
    assert "zero1" not in advice(compared([run(1, 1.0, optimizer=0.4)]), Strategy())


@pytest.mark.parametrize("name", ["fsdp", "data_parallel"])
@pytest.mark.parametrize("runs", [SLOWER, [run(1, 1.0), run(2, 1.4, communication=0.3)]])
def test_cores_are_not_the_cause_if_computing_includes_waits(
    name: str, runs: list[ScalingRun]
) -> None:
    said = advice(compared(runs), Strategy.model_validate({"name": name}))
    assert "share cores" not in said
    assert f"with {name} the devices wait for each other in both" in said


def test_a_bucket_size_is_recommended_only_for_a_gain() -> None:
    usual = run(2, 1.0)
    assert best_bucket([usual, run(2, 0.9, 50.0), run(2, 1.1, 1.0), usual]) == (
        "strategy.bucket_cap_mb: 50 is 11% faster than torch's default"
    )
    assert best_bucket([usual, run(2, 0.98, 50.0), usual]).startswith("omit strategy.bucket_cap_mb")
    assert best_bucket([usual, run(2, 0.9, 50.0), run(2, 1.2)]) == (
        "omit strategy.bucket_cap_mb: no size is more than 20 % faster than torch's default, the "
        "spread of equal runs"
    )
