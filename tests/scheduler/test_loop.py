"""When passes are made, and what a pass that fails does to the next."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.scheduler.loop import ReconcileLoop
from lockstep.scheduler.report import CycleReport
from tests.brokers import until


class Passes:
    """Notes each pass: whether a bell asked for it. Does what it was told to do first."""

    def __init__(self) -> None:
        self.made: list[bool] = []
        self.answers: list[CycleReport | Exception] = []

    def __call__(self, woken: bool) -> CycleReport:
        self.made.append(woken)
        answer = self.answers.pop(0) if self.answers else CycleReport(held=True)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def passes() -> Passes:
    return Passes()


@pytest.fixture
def rare(passes: Passes) -> Iterator[ReconcileLoop]:
    """A loop that makes its first pass, and then none for an hour unless it is asked to."""
    loop = ReconcileLoop(passes, cycle_seconds=3600)
    loop.start()
    until(lambda: passes.made, 60, "the first pass")
    yield loop
    loop.ask_stop()
    loop.join()


def test_the_first_pass_is_made_at_the_start(passes: Passes, rare: ReconcileLoop) -> None:
    assert passes.made == [False]


def test_a_bell_is_answered_by_a_pass(passes: Passes, rare: ReconcileLoop) -> None:
    rare.notify()
    until(lambda: passes.made == [False, True], 60, "a pass for the bell")


def test_a_storm_of_bells_is_answered_by_one_pass(passes: Passes) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(woken: bool) -> CycleReport:
        inside.set()
        assert go_on.wait(60)
        return passes(woken)

    loop = ReconcileLoop(slow, cycle_seconds=3600)
    loop.start()
    assert inside.wait(60)
    for _bell in range(1000):
        loop.notify()
    go_on.set()
    until(lambda: passes.made == [False, True], 60, "a pass for the bells")
    assert loop._inbox.empty()  # no bell is left for another pass
    loop.ask_stop()
    loop.join()
    assert passes.made == [False, True]


def test_a_bell_during_a_pass_is_answered_by_another(passes: Passes) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(woken: bool) -> CycleReport:
        inside.set()
        go_on.wait(60)
        return passes(woken)

    loop = ReconcileLoop(slow, cycle_seconds=3600)
    loop.start()
    assert inside.wait(60)
    loop.notify()
    go_on.set()
    until(lambda: passes.made == [False, True], 60, "a pass for the bell")
    loop.ask_stop()
    loop.join()


def test_time_alone_makes_passes(passes: Passes) -> None:
    loop = ReconcileLoop(passes, cycle_seconds=0.05)
    loop.start()
    until(lambda: len(passes.made) >= 4, 60, "four passes")
    loop.ask_stop()
    loop.join()
    assert not any(passes.made)


def test_a_pass_that_left_something_over_is_followed_at_once(
    passes: Passes, rare: ReconcileLoop
) -> None:
    passes.answers = [CycleReport(held=True, again=True), CycleReport(held=True, again=True)]
    rare.notify()
    until(lambda: len(passes.made) == 4, 60, "a pass for the bell and two more")


@pytest.mark.parametrize(
    "error", [LockstepError(ErrorCode.UNAVAILABLE, "away"), RuntimeError("a bug")]
)
def test_a_pass_that_fails_does_not_end_the_loop(
    error: Exception, passes: Passes, rare: ReconcileLoop
) -> None:
    passes.answers = [error, error]
    for made in (2, 3, 4):
        rare.notify()
        until(lambda made=made: len(passes.made) >= made, 60, "the next pass")  # type: ignore[misc]


def test_it_ends_soon_after_it_was_asked_to_although_no_pass_is_due(rare: ReconcileLoop) -> None:
    rare.ask_stop()
    until(lambda: not rare._thread.is_alive(), 60, "the end, an hour before the next pass")


def test_one_that_never_began_can_be_ended(passes: Passes) -> None:
    loop = ReconcileLoop(passes, cycle_seconds=1)
    loop.ask_stop()
    loop.join()
    assert passes.made == []
