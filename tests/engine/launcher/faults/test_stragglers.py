"""A rank for which the others wait in each step is named.

Not here: ranks that do not move (``tests.engine.launcher.faults.test_stall``).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.engine.launcher.bounds import Bounds
from lockstep.engine.launcher.stall.stragglers import Stragglers, slowest
from lockstep.engine.runtime import heartbeat
from lockstep.engine.runtime.heartbeat import HeartbeatReading
from tests.engine.launcher.faults.test_stall import Rank


def _mark_count(
    *work: float, steps: int = 100, step_seconds: float = 1.0
) -> tuple[dict[int, HeartbeatReading], dict[int, HeartbeatReading]]:
    begin = {rank: HeartbeatReading(0.0, 0.0, 50, "data", 1, 1, 0) for rank in range(len(work))}
    end = {
        rank: HeartbeatReading(
            steps * step_seconds, steps * (step_seconds - seconds), 50 + steps, "data", 2, 1, 0
        )
        for rank, seconds in enumerate(work)
    }
    return begin, end


def test_the_rank_that_waits_least_is_the_slow_one() -> None:
    slow = slowest(*_mark_count(0.5, 0.5, 0.9, 0.52), bounds=Bounds())
    assert slow is not None
    assert slow.startswith(
        "rank 2 is slower than the others: it works 0.9 s in each step, they 0.5 s"
    )


@pytest.mark.parametrize("work", [(0.5, 0.5, 0.59), (0.9, 0.9, 0.5), (0.5, 0.5)])
def test_ranks_that_work_equally_long_are_not_stragglers(work: tuple[float, ...]) -> None:
    assert slowest(*_mark_count(*work), bounds=Bounds()) is None


def test_a_few_steps_are_not_enough_to_name_a_rank() -> None:
    assert slowest(*_mark_count(0.5, 0.9, steps=5), bounds=Bounds()) is None


def test_a_slow_rank_is_named_at_long_intervals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(heartbeat, "monotonic", lambda: now)
    bounds = Bounds(
        straggler_window_seconds=10, straggler_silence_seconds=35, straggler_steps_min=1
    )
    stragglers = Stragglers(tmp_path, bounds)
    assert (
        stragglers.poll({0: 1, 1: 1}, 99.0) is None
    )  # They do not train yet: this begins no window.
    ranks = {rank: Rank(tmp_path, rank) for rank in (0, 1)}

    def window(step: int) -> None:
        nonlocal now
        ranks[0].mark("communication", step)  # here it waits for rank 1
        now += 10.0
        ranks[0].mark("data", step)
        ranks[1].mark("data", step)

    messages = []
    for look in range(8):
        window(look)
        messages.append(stragglers.poll({0: 1, 1: 1}, 100.0 + 10.0 * look))
    assert [look for look, message in enumerate(messages) if message] == [1, 5]


def test_the_set_up_of_a_resumed_run_does_not_count_as_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(heartbeat, "monotonic", lambda: now)
    stragglers = Stragglers(tmp_path, Bounds(straggler_steps_min=1))
    ranks = {rank: Rank(tmp_path, rank, "setup") for rank in (0, 1)}
    assert stragglers.poll({0: 1, 1: 1}, 100.0) is None
    for rank, seconds in ((0, 2.0), (1, 1.0)):
        now += seconds
        ranks[rank].mark("data", step=10)
    assert stragglers.poll({0: 1, 1: 1}, 100.1) is None


@pytest.mark.parametrize("phase", ["checkpoint", "eval"])
def test_work_of_one_rank_for_all_does_not_make_it_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    """Rank 0 alone writes checkpoints: its device is not slow, and the others wait for it at most
    in the next step."""
    now = 0.0
    monkeypatch.setattr(heartbeat, "monotonic", lambda: now)
    stragglers = Stragglers(tmp_path, Bounds(straggler_steps_min=1))
    ranks = [Rank(tmp_path, rank) for rank in (0, 1)]
    assert stragglers.poll({0: 1, 1: 1}, 100.0) is None
    for seconds, first, second in ((1.0, phase, "communication"), (5.0, "data", "data")):
        now += seconds
        ranks[0].mark(first, step=1)
        ranks[1].mark(second, step=1)
    assert stragglers.poll({0: 1, 1: 1}, 200.0) is None
