"""Health checks are rare, and no request waits for a slow one."""

from __future__ import annotations

import threading

from lockstep.api.http.bounded import BoundedCheck
from lockstep.api.readiness import NO_ANSWER, NO_STORE, REMEMBER_SECONDS, Readiness
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.storage.db.schema import Mismatch


class Pings:
    """Stand-in for the database: it counts, waits and fails as configured."""

    def __init__(self) -> None:
        self.count = 0
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.away = False

    def ping(self) -> None:
        self.count += 1
        self.entered.set()
        assert self.gate.wait(60)
        if self.away:
            raise LockstepError(ErrorCode.UNAVAILABLE, "the jobs database does not answer")

    def check_room(self) -> None:
        pass


def readiness(
    pings: Pings,
    now: list[float],
    cycle_seconds: float | None = 1.0,
    broker: bool = True,
    differs: Mismatch | None = None,
    trouble: str = "",
) -> Readiness:
    return Readiness(
        pings,  # type: ignore[arg-type]
        mismatch=lambda: differs,
        store_trouble=lambda: trouble,
        broker_answers=lambda: broker,
        cycle_seconds=lambda: (cycle_seconds, 30.0),
        clock=lambda: now[0],
    )


def test_many_requests_cost_one_check() -> None:
    pings, now = Pings(), [0.0]
    check = readiness(pings, now).check
    assert {check().health.status for _ in range(50)} == {"ok"}
    assert pings.count == 1
    now[0] += REMEMBER_SECONDS + 0.1
    pings.away = True
    assert check().health.status == "unavailable"


def test_during_a_check_other_requests_get_the_last_answer() -> None:
    pings, now = Pings(), [0.0]
    check = readiness(pings, now).check
    check()
    now[0] += REMEMBER_SECONDS + 0.1
    pings.gate.clear()
    pings.entered.clear()
    slow = threading.Thread(target=check)
    slow.start()
    assert pings.entered.wait(60)
    assert check().health.status == "ok"  # each would wait forever for the other
    pings.gate.set()
    slow.join(60)
    assert pings.count == 2


def test_a_silent_scheduler_is_a_warning_and_jobs_are_accepted() -> None:
    def seen(cycle_seconds: float | None, *, broker: bool = True) -> tuple[str, str]:
        health = readiness(Pings(), [0.0], cycle_seconds, broker).check().health
        return health.status, health.checks["scheduler"]

    assert seen(29.0) == ("ok", "ok")
    assert seen(29.0, broker=False) == ("degraded", "ok")
    assert seen(45.4) == (
        "degraded",
        "completed its last cycle 45 s ago; jobs are accepted and start after its next cycle",
    )
    assert seen(None) == (
        "degraded",
        "has not completed a cycle yet; jobs are accepted and start after its next cycle",
    )


def test_a_newer_schema_requests_an_upgrade_and_jobs_are_accepted() -> None:
    health = readiness(Pings(), [0.0], differs=Mismatch("jobs", "0009", "0005")).check().health
    assert health.status == "degraded"
    assert "schema 0009, newer than 0005 of this program" in health.checks["database"]
    assert health.checks["database"].endswith("; upgrade Lockstep on this host")
    assert "migrate" not in health.checks["database"]
    assert health.checks["scheduler"] == "ok"


def test_an_older_schema_requests_a_migration_and_is_not_ready() -> None:
    health = readiness(Pings(), [0.0], differs=Mismatch("series", "0002", "0004")).check().health
    assert health.status == "unavailable"
    assert health.checks["database"].endswith("; upgrade the database with: lockstep migrate")


def test_reasons_are_in_the_full_answer_only() -> None:
    pings = Pings()
    pings.away = True
    seen = readiness(
        pings, [0.0], trouble="/mnt/store cannot be written: Read-only file system"
    ).check()
    assert (seen.health.checks["database"], seen.health.checks["store"]) == (NO_ANSWER, NO_STORE)
    assert seen.in_full().checks["database"] == "the jobs database does not answer"
    assert seen.in_full().checks["store"] == "/mnt/store cannot be written: Read-only file system"


def test_a_store_that_hangs_delays_no_request_and_is_checked_once() -> None:
    gate, asked = threading.Event(), []

    def hangs() -> str:
        asked.append(1)
        assert gate.wait(60)
        return ""

    check = BoundedCheck(hangs, patience_seconds=0.01)
    try:
        assert {check.ask()[:21] for _ in range(5)} == {"has not answered for "}
        assert len(asked) == 1
    finally:
        gate.set()


def test_a_check_that_raises_is_a_trouble() -> None:
    def fails() -> str:
        raise ValueError("no such bucket")

    assert BoundedCheck(fails, patience_seconds=60).ask() == "ValueError: no such bucket"
