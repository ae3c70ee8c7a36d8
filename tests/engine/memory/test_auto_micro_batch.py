"""``micro_size: auto``: the chosen size, the number of trials, and the absence of side effects."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.domain.life.outcomes import Reason
from lockstep.domain.spec.batch import accumulation_steps
from lockstep.domain.training.plan import BatchPlan
from lockstep.engine.memory.auto import available_bytes
from lockstep.engine.memory.sizes import (
    AS_FAST,
    OUT_OF_MEMORY,
    OutOfMemory,
    Trial,
    candidates,
    fastest,
    largest,
)
from lockstep.engine.runtime.errors import EngineError
from tests.engine.memory import auto_micro_batch_cases
from tests.harness.ranks import Pool

FIXED, PER_SAMPLE = 1000.0, 10.0


class Device:
    """Device with a given amount of memory that records its trials."""

    def __init__(self, room: float = math.inf, seconds: dict[int, float] | None = None):
        self.room, self.seconds = room, seconds or {}
        self.tried: list[int] = []

    def __call__(self, size: int) -> Trial | OutOfMemory:
        self.tried.append(size)
        peak = FIXED + PER_SAMPLE * size
        return Trial(peak, self.seconds.get(size, 1.0)) if peak <= self.room else OUT_OF_MEMORY


@given(shard=st.integers(1, 100_000))
def test_candidates_are_found_by_halving_and_are_few(shard: int) -> None:
    sizes = candidates(shard)
    assert sizes == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (1, shard)
    assert len(sizes) <= math.log2(shard) + 2
    plan: BatchPlan | None = BatchPlan(
        batch_size=shard,
        micro_batch_size=shard,
        accumulation_steps=accumulation_steps(shard, shard, 1),
        world_size=1,
    )
    while plan is not None:
        assert plan.micro_batch_size in sizes
        plan = plan.halved()


@given(shard=st.integers(1, 5000), limit=st.integers(0, 60_000))
def test_on_a_device_the_largest_size_within_the_headroom_is_taken(shard: int, limit: int) -> None:
    sizes = candidates(shard)
    device = Device(room=limit / 0.85)
    found = largest(device, sizes, limit_bytes=limit)
    fitting = [size for size in sizes if FIXED + PER_SAMPLE * size <= limit]
    assert found == (fitting[-1] if fitting else None)
    assert len(device.tried) == len(set(device.tried)) <= math.log2(shard) + 2


def test_sizes_predicted_not_to_fit_are_not_tried() -> None:
    device = Device(room=FIXED + 100 * PER_SAMPLE)
    assert largest(device, candidates(4096), limit_bytes=device.room) == 64
    assert device.tried == [1, 2, 64]


def test_a_wrong_prediction_leads_to_the_next_smaller_size() -> None:
    class Steeper(Device):
        def __call__(self, size: int) -> Trial | OutOfMemory:
            found = super().__call__(size)
            return OUT_OF_MEMORY if size > 16 else found

    device = Steeper(room=FIXED + 100 * PER_SAMPLE)
    assert largest(device, candidates(4096), limit_bytes=device.room) == 16
    assert device.tried == [1, 2, 64, 32, 16]


def curve(**seconds_per_sample: float) -> dict[int, float]:
    return {int(size.removeprefix("m")): seconds for size, seconds in seconds_per_sample.items()}


def always(size: int) -> bool:
    return True


def test_of_equally_fast_sizes_the_smallest_is_taken() -> None:
    device = Device(seconds=curve(m1=4.0, m2=2.0, m4=1.03, m8=1.0, m16=1.01, m32=1.02, m64=1.0))
    assert fastest(device, candidates(64), fits=always) == 4


@given(noise=st.lists(st.floats(0.98, 1.02), min_size=7, max_size=7))
def test_noise_of_two_percent_does_not_move_the_choice(noise: list[float]) -> None:
    plateau = curve(m1=4.0, m2=2.0, m4=1.0, m8=1.0, m16=1.0, m32=1.0, m64=1.0)
    noisy = {
        size: seconds * factor
        for (size, seconds), factor in zip(plateau.items(), noise, strict=True)
    }
    assert AS_FAST < 0.98 / 1.02
    assert fastest(Device(seconds=noisy), candidates(64), fits=always) == 4


def test_larger_sizes_are_not_tried_once_two_gained_nothing() -> None:
    device = Device(seconds=curve(m1=4.0, m2=2.0, m4=2.0, m8=2.0))
    assert fastest(device, candidates(4096), fits=always) == 2
    assert device.tried == [1, 2, 4, 8]


def test_a_larger_size_that_is_slower_is_not_taken() -> None:
    device = Device(seconds=curve(m1=2.0, m2=1.0, m4=3.0, m8=3.0))
    assert fastest(device, candidates(8), fits=always) == 2


def test_a_size_beyond_the_memory_of_the_host_is_not_tried() -> None:
    device = Device(seconds={size: 1 / size for size in (1, 2, 4, 8, 16)})
    assert fastest(device, candidates(16), fits=lambda size: size <= 4) == 4
    assert device.tried == [1, 2, 4]
    assert fastest(device, candidates(16), fits=lambda size: False) is None


def test_a_lower_limit_of_the_container_takes_precedence(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  16000 kB\nMemAvailable:    8000 kB\n")
    assert available_bytes(meminfo, tmp_path) == 8000 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert available_bytes(meminfo, tmp_path) == 8000 * 1024
    (tmp_path / "memory.max").write_text("5000\n")
    assert available_bytes(meminfo, tmp_path) == 4000


# --- on real ranks


Searches = list[auto_micro_batch_cases.Found]


@pytest.fixture(scope="module", params=[1, 2, 3])
def searched(pool: Pool, request: pytest.FixtureRequest) -> Searches:
    found: Searches = pool.run(auto_micro_batch_cases.choose_on_rank, world_size=request.param)
    return found


def test_every_rank_takes_the_same_size_without_collectives_in_trials(searched: Searches) -> None:
    found, world_size = searched, len(searched)
    assert len({one.size for one in found}) == 1
    assert found[0].size in candidates(-(-auto_micro_batch_cases.BATCH // world_size))
    assert all(one.collectives_in_trials == 0 for one in found)
    assert len({tuple(one.tried) for one in found}) == 1


def test_the_search_leaves_no_trace(searched: Searches) -> None:
    for one in searched:
        assert one.tried, "nothing was tried, so nothing is shown"
        assert one.changed == []


def test_weights_after_a_search_equal_those_without_it(pool: Pool) -> None:
    searched, plain = (
        pool.run(auto_micro_batch_cases.weights_after_steps, search, world_size=3)
        for search in (True, False)
    )
    assert searched == plain


def test_a_size_that_fails_on_one_rank_has_failed_on_all(pool: Pool) -> None:
    found = pool.run(
        auto_micro_batch_cases.choose_on_rank, {"fails_on": 1, "fails_from": 3}, world_size=2
    )
    assert {one.size for one in found} <= {1, 2}
    assert len({one.size for one in found}) == 1
    assert len({tuple(one.tried) for one in found}) == 1
    assert all(one.changed == [] for one in found)


def test_one_sample_that_does_not_fit_is_refused_with_advice(pool: Pool) -> None:
    with pytest.raises(EngineError, match="one sample per micro-batch does not fit") as raised:
        pool.run(
            auto_micro_batch_cases.choose_on_rank, {"fails_on": 0, "fails_from": 1}, world_size=2
        )
    assert raised.value.reason is Reason.OUT_OF_MEMORY


def test_another_error_in_a_trial_is_raised_unchanged(pool: Pool) -> None:
    options: dict[str, Any] = {"fails_on": 0, "fails_from": 1, "message": "no such luck"}
    with pytest.raises(RuntimeError, match="no such luck"):
        pool.run(auto_micro_batch_cases.choose_on_rank, options, world_size=1)


def test_a_run_with_auto_equals_a_run_of_that_size(pool: Pool, tmp_path: Path) -> None:
    found = pool.run(
        partial(auto_micro_batch_cases.train_with_auto, steps=3), tmp_path / "auto", world_size=2
    )
    size = found[0].micro_batch_size
    assert {one.micro_batch_size for one in found} == {size}
    reported = [
        json.loads(line)
        for line in (tmp_path / "auto" / "spool" / "events.jsonl").read_text().splitlines()
    ]
    plan = next(event["data"] for event in reported if event["kind"] == "plan")
    assert (plan["micro_batch_size"], plan["accumulation_steps"]) == (
        size,
        accumulation_steps(24, size, 2),
    )
    named = pool.run(
        partial(auto_micro_batch_cases.train_with_auto, steps=3, micro_size=size),
        tmp_path / "named",
        world_size=2,
    )
    assert found[0].weights == named[0].weights


@pytest.mark.contract(26)
def test_a_resumed_run_uses_the_size_in_its_checkpoint(pool: Pool, tmp_path: Path) -> None:
    first = partial(auto_micro_batch_cases.train_with_auto, steps=2)
    size = pool.run(first, tmp_path / "cut", world_size=2)[0].micro_batch_size
    more = partial(auto_micro_batch_cases.train_with_auto, steps=4, resumes=True, refuse=True)
    resumed = pool.run(more, tmp_path / "cut", world_size=2)
    assert {one.micro_batch_size for one in resumed} == {size}
    whole = partial(auto_micro_batch_cases.train_with_auto, steps=4, micro_size=size)
    assert resumed[0].weights == pool.run(whole, tmp_path / "whole", world_size=2)[0].weights
    lines = (tmp_path / "cut" / "spool" / "events.jsonl").read_text().splitlines()
    assert (
        next(
            event["data"]["exact"] for event in map(json.loads, lines) if event["kind"] == "resumed"
        )
        is True
    )
