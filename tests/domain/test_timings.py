"""Waits. Their order prevents two attempts of one job from training at once."""

from __future__ import annotations

import re
from dataclasses import asdict, fields, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.domain.life.timings import Timings


def test_the_defaults_are_the_designs() -> None:
    timings = Timings()
    assert (timings.heartbeat_seconds, timings.lease_seconds, timings.fence_seconds) == (5, 60, 50)
    assert (timings.replace_after_seconds, timings.cycle_seconds, timings.outage_seconds) == (
        70,
        2,
        30,
    )
    assert (timings.stop_grace_seconds, timings.exit_stall_seconds) == (5, 30)


@pytest.mark.parametrize(
    "change",
    [
        {"heartbeat_seconds": 25.0},
        {"fence_seconds": 60.0},
        {"fence_seconds": 61.0},
        {"lease_seconds": 70.0},
        {"replace_after_seconds": 59.0},
        {"fence_seconds": 10.0},
    ],
)
def test_an_order_in_which_two_attempts_could_run_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="two attempts of one job could run at the same time"):
        replace(Timings(), **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"fence_seconds": 61.0},
            "fence_seconds must be less than lease_seconds, got 61 and 60: otherwise two attempts "
            "of one job could run at the same time; lower LOCKSTEP_FENCE_SECONDS or raise "
            "LOCKSTEP_LEASE_SECONDS",
        ),
        (
            {"heartbeat_seconds": 25.0},
            "2 × heartbeat_seconds must be less than fence_seconds, got 2 × 25 and 50",
        ),
        ({"cycle_seconds": 30.0}, "no lease would ever be declared expired"),
        ({"outage_seconds": 60.0}, "an outage of the service could expire all leases"),
    ],
)
def test_a_wrong_order_is_refused_with_both_values_and_their_settings(
    change: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(Timings(), **change)


def test_stored_timings_of_another_version_may_lack_waits_and_have_others() -> None:
    stored = {**asdict(Timings()), "heartbeat_seconds": 3.0, "of_a_newer_version_seconds": 1.0}
    del stored["sample_seconds"]
    assert Timings.of(stored) == Timings(heartbeat_seconds=3.0)


@pytest.mark.parametrize("name", [field.name for field in fields(Timings)])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_wait_that_is_no_positive_number_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        replace(Timings(), **{name: value})


@given(st.floats(0.001, 1000))
def test_scaling_keeps_every_ratio(factor: float) -> None:
    scaled, plain = Timings().scaled(factor), Timings()
    for field in fields(Timings):
        assert getattr(scaled, field.name) == pytest.approx(getattr(plain, field.name) * factor)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan")])
def test_a_scale_that_is_not_positive_is_refused(factor: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        Timings().scaled(factor)


@given(st.integers(1, 10**9), st.text())
def test_the_backoff_doubles_up_to_a_limit_with_bounded_jitter(failures: int, who: str) -> None:
    longest = [0, 1, 2, 4, 8, 16, 32, 64, 120][min(failures, 8)]
    assert longest / 2 <= Timings().backoff(failures, who=who) <= longest


@pytest.mark.parametrize("failures", [0, -1])
def test_a_job_without_failures_does_not_wait(failures: int) -> None:
    assert Timings().backoff(failures, who="job/1") == 0


def test_jobs_that_failed_together_come_back_spread_out() -> None:
    waits = sorted(Timings().backoff(8, who=f"job-{number}/1") for number in range(1_000))
    assert waits[0] < 62
    assert waits[-1] > 118
    assert max(later - earlier for earlier, later in pairwise(waits)) < 1  # a mean of 0.06 s


def test_the_backoff_of_an_attempt_is_deterministic() -> None:
    assert len({Timings().backoff(3, who="job/3") for _ in range(3)}) == 1


def test_timings_cannot_be_changed_after_the_check() -> None:
    with pytest.raises(AttributeError):
        Timings().lease_seconds = 1.0
