"""Grace of a stop: long enough for the last checkpoint, and bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.domain.life.grace import (
    GRACE_SECONDS_MAX,
    Cause,
    SaveTime,
    StoppedJob,
    grace_of,
)

CAUSES: tuple[Cause, ...] = ("cancelled", "timed_out", "shutdown", "preempted")


def train(seconds: float | None, *, measured: bool = True) -> StoppedJob:
    save = None if seconds is None else SaveTime(seconds=seconds, measured=measured)
    return StoppedJob("train", save)


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        (train(13.7), "at most 42 s: 3 × the last checkpoint, 13.7 s"),
        (train(17.3, measured=False), "at most 52 s: 3 × the forecast of a checkpoint, 17.3 s"),
        (train(0.2), "at most 5 s: the least, because 3 × the last checkpoint, 0.2 s, is less"),
        (train(None), "at most 5 s: no step is complete, so there is nothing to save"),
        (train(140), "at most 300 s: the limit, because 3 × the last checkpoint, 140 s, is more"),
        (StoppedJob("script"), "at most 30 s: the time of a script that gives none"),
        (StoppedJob("script", given_seconds=2), "at most 2 s: stop_grace_seconds of the job"),
        # A script can write the file of the engine.
        (
            StoppedJob("script", SaveTime(seconds=90, measured=True)),
            "at most 30 s: the time of a script that gives none",
        ),
    ],
)
def test_the_grace_follows_from_the_last_save(job: StoppedJob, sentence: str, cause: Cause) -> None:
    assert grace_of(job, cause).sentence() == sentence


def test_now_leaves_no_time() -> None:
    assert grace_of(train(14), "now").seconds == 0
    assert grace_of(train(14), "now").sentence() == "at once: it is killed without a checkpoint"


@given(st.floats(0, 1e9), st.floats(0.01, 100))
def test_a_train_job_has_time_for_three_saves_up_to_the_limit(seconds: float, least: float) -> None:
    save = SaveTime(seconds=seconds, measured=True)
    grace = grace_of(StoppedJob("train", save, least), "cancelled").seconds
    assert min(3 * seconds, GRACE_SECONDS_MAX) <= grace <= max(GRACE_SECONDS_MAX, least)
    assert grace >= least


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_a_duration_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="seconds"):
        SaveTime(seconds=seconds, measured=True)


def test_the_forecast_of_a_state_is_that_of_a_slow_disk() -> None:
    assert SaveTime.forecast(144e6 * 12).seconds == pytest.approx(17.28)
