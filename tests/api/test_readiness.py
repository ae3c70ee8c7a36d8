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


def readiness(pings: Pings, now: list[float]) -> Readiness:
    return Readiness(pings, pending=list, broker_answers=lambda: True, clock=lambda: now[0])  # type: ignore[arg-type]


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
