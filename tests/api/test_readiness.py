"""Health is looked at rarely, and nobody waits for a look that takes long."""

from __future__ import annotations

import threading

from api.readiness import REMEMBER_SECONDS, Readiness
from domain.errors import ErrorCode, LockstepError


class Pings:
    """Takes the database's place: counts, waits and fails as told."""

    def __init__(self) -> None:
        self.count = 0
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.away = False

    def ping(self) -> None:
        self.count += 1
        self.entered.set()
        assert self.gate.wait(10)
        if self.away:
            raise LockstepError(ErrorCode.UNAVAILABLE, "the jobs database does not answer")


def readiness(pings: Pings, now: list[float], pass_seconds: float | None = 1.0, broker: bool = True) -> Readiness:
    return Readiness(
        pings,  # type: ignore[arg-type]
        pending=list,
        broker_answers=lambda: broker,
        pass_seconds=lambda: pass_seconds,
        outage_seconds=30.0,
        clock=lambda: now[0],
    )


def test_many_who_ask_cost_one_look() -> None:
    pings, now = Pings(), [0.0]
    look = readiness(pings, now).look
    assert {look().status for _ in range(50)} == {"ok"}
    assert pings.count == 1
    now[0] += REMEMBER_SECONDS + 0.1
    pings.away = True
    assert look().status == "unavailable"


def test_while_one_looks_the_others_get_the_last_answer() -> None:
    pings, now = Pings(), [0.0]
    look = readiness(pings, now).look
    look()
    now[0] += REMEMBER_SECONDS + 0.1
    pings.gate.clear()
    pings.entered.clear()
    slow = threading.Thread(target=look)
    slow.start()
    assert pings.entered.wait(10)
    assert look().status == "ok"  # would wait for ever if it waited for the other
    pings.gate.set()
    slow.join(10)
    assert pings.count == 2


def test_a_scheduler_that_is_silent_is_a_warning_and_jobs_are_still_accepted() -> None:
    def seen(pass_seconds: float | None, *, broker: bool = True) -> tuple[str, str]:
        health = readiness(Pings(), [0.0], pass_seconds, broker).look()
        return health.status, health.checks["scheduler"]

    assert seen(29.0) == ("ok", "ok")
    assert seen(29.0, broker=False) == ("degraded", "ok")
    assert seen(45.4) == ("degraded", "made its last pass 45 s ago; jobs are accepted and start once it does")
    assert seen(None) == ("degraded", "has not made a pass yet; jobs are accepted and start once it does")
