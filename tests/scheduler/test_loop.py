"""Loop of the scheduler: times of its cycles, and the cycle after one that fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.scheduler.loop import ReconcileLoop
from lockstep.scheduler.report import CycleReport
from tests.harness.processes import until


class Cycles:
    """Record of the cycles and of the notifications that requested them.

    A cycle first runs its configured action.
    """

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
def cycles() -> Cycles:
    return Cycles()


@pytest.fixture
def rare(cycles: Cycles) -> Iterator[ReconcileLoop]:
    """Return a loop that runs its first cycle, and then one per hour unless it is notified."""
    loop = ReconcileLoop(cycles, cycle_seconds=3600)
    loop.start()
    until(lambda: cycles.made, 60, "the first pass")
    yield loop
    loop.request_stop()
    loop.join()


def test_the_first_cycle_runs_at_the_start(cycles: Cycles, rare: ReconcileLoop) -> None:
    assert cycles.made == [False]


def test_a_notification_starts_a_cycle(cycles: Cycles, rare: ReconcileLoop) -> None:
    rare.notify()
    until(lambda: cycles.made == [False, True], 60, "a cycle for the notification")


def held(cycles: Cycles) -> tuple[ReconcileLoop, threading.Event]:
    """Return a loop inside its first cycle, and the event that ends it."""
    inside, go_on = threading.Event(), threading.Event()

    def slow(woken: bool) -> CycleReport:
        inside.set()
        assert go_on.wait(60)
        return cycles(woken)

    loop = ReconcileLoop(slow, cycle_seconds=3600)
    loop.start()
    assert inside.wait(60)
    return loop, go_on


def test_many_notifications_start_one_cycle(cycles: Cycles) -> None:
    loop, go_on = held(cycles)
    for _notification in range(1000):
        loop.notify()
    go_on.set()
    until(lambda: cycles.made == [False, True], 60, "a cycle for the notifications")
    assert loop._inbox.empty()  # no notification is left for another cycle
    loop.request_stop()
    loop.join()
    assert cycles.made == [False, True]


def test_a_notification_during_a_cycle_starts_another(cycles: Cycles) -> None:
    loop, go_on = held(cycles)
    loop.notify()
    go_on.set()
    until(lambda: cycles.made == [False, True], 60, "a cycle for the notification")
    loop.request_stop()
    loop.join()


def test_cycles_run_without_notifications(cycles: Cycles) -> None:
    loop = ReconcileLoop(cycles, cycle_seconds=0.05)
    loop.start()
    until(lambda: len(cycles.made) >= 4, 60, "four cycles")
    loop.request_stop()
    loop.join()
    assert not any(cycles.made)


def test_an_incomplete_cycle_is_followed_at_once_by_another(
    cycles: Cycles, rare: ReconcileLoop
) -> None:
    cycles.answers = [CycleReport(held=True, again=True), CycleReport(held=True, again=True)]
    rare.notify()
    until(lambda: len(cycles.made) == 4, 60, "a cycle for the notification and two more")


@pytest.mark.parametrize(
    "error", [LockstepError(ErrorCode.UNAVAILABLE, "away"), RuntimeError("a bug")]
)
def test_a_cycle_that_fails_does_not_end_the_loop(
    error: Exception, cycles: Cycles, rare: ReconcileLoop
) -> None:
    cycles.answers = [error, error]
    for made in (2, 3, 4):
        rare.notify()
        until(lambda made=made: len(cycles.made) >= made, 60, "the next pass")  # type: ignore[misc]


def test_a_stop_ends_the_loop_although_no_cycle_is_due(rare: ReconcileLoop) -> None:
    rare.request_stop()
    until(lambda: not rare._thread.is_alive(), 60, "the end, an hour before the next pass")


def test_one_that_never_began_can_be_ended(cycles: Cycles) -> None:
    loop = ReconcileLoop(cycles, cycle_seconds=1)
    loop.request_stop()
    loop.join()
    assert cycles.made == []
