"""What is said about a job that was run on several numbers of devices."""

from __future__ import annotations

import pytest

from domain.scaling import Measured, advice, best_bucket, compared, measured


def run(world_size: int, step: float, bucket: float | None = None, **parts: float) -> Measured:
    """A run whose parts are fractions of its step; what is left over is computing."""
    rest = 1 - sum(parts.values())
    fractions = {"forward": rest / 3, "backward": rest * 2 / 3, **parts}
    return Measured(
        world_size, bucket, step, 64 / step, {part: step * fraction for part, fraction in fractions.items()}
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
    assert [(row.measured.world_size, round(row.speedup, 3), round(row.efficiency, 3)) for row in rows] == [
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
        ([run(1, 1.0), run(2, 0.7, communication=0.3)], "communication-bound: on 2 ranks 30% of the step waits"),
        ([run(1, 1.0, optimizer=0.4)], "update-bound: on 1 rank 40% of the step is the optimizer's"),
        ([run(1, 1.0), run(2, 0.52)], "compute-bound, as it should be: on 2 ranks 100% of the step computes"),
        ([run(1, 1.0), run(4, 0.6)], "on 4 ranks each sample takes 2.4 times as long to compute as on the fewest"),
        # A rank that is slowed down makes the others wait: that is no fault of the network.
        ([run(1, 1.0), run(2, 1.2, communication=0.2)], "on 2 ranks each sample takes 1.9 times as long"),
        ([run(1, 1.0), run(2, 0.58, other=0.1)], "on 2 ranks 86% of linear: no part of the step stands out"),
    ],
)
def test_one_sentence_says_what_holds_it_back(runs: list[Measured], sentence: str) -> None:
    assert advice(compared(runs)).startswith(sentence)


def test_a_bucket_size_is_recommended_only_for_a_gain() -> None:
    usual = run(2, 1.0)
    assert best_bucket([usual, run(2, 0.9, 50.0), run(2, 1.1, 1.0)]) == (
        "strategy.bucket_cap_mb: 50 is 11% faster than torch's own sizes"
    )
    assert best_bucket([usual, run(2, 0.98, 50.0)]).startswith("leave strategy.bucket_cap_mb out")
