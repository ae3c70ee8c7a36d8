"""Effect of a cycle on the job database. Both databases; no broker, no Celery, no process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.orm import Session

from lockstep.broker.messages import StartAssignment
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.scheduling.decide import decide
from lockstep.domain.scheduling.state import ClusterState, Plan, WaitCode
from lockstep.scheduler import cycle as cycle_module
from lockstep.scheduler import reconcile
from lockstep.scheduler.remembered import Remembered
from lockstep.scheduler.report import CycleReport
from lockstep.storage.attempts import attempts, nodes
from lockstep.storage.control import scheduler_lease
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import EventRow, JobRow
from lockstep.storage.jobs import retention, stopping
from lockstep.storage.jobs.waiting import Waiting
from tests.scheduler.world import Notifications, World

# -- placing
# --------------------------------------------------------------------------------------------------


def test_a_queued_job_is_placed_and_its_node_notified_after_the_commit(world: World) -> None:
    world.node("n", 4)
    job = world.submit(2)
    report = world.run_one()
    (part,) = world.assignments(job)
    assert report.placed == 1
    assert world.state(job) is JobState.STARTING
    assert (part.node_name, part.device_indices) == ("n", [0, 1])
    assert world.notifications.take() == [StartAssignment(part.id, "n")]


def test_a_gang_that_does_not_fit_takes_no_device(world: World) -> None:
    world.node("n", 4)
    first, second = world.submit(2), world.submit(4)
    world.run_one()
    assert world.state(first) is JobState.STARTING
    waiting = world.job(second)
    assert waiting.state is JobState.QUEUED
    assert waiting.wait_position == 1
    assert (waiting.wait_code, waiting.wait_reason) == (
        WaitCode.HOLDS,
        "holds n and waits for 2 more free devices (needs 4, 2 free there)",
    )
    assert len(world.held()) == 2


def test_a_job_waits_for_a_node_that_offers_what_it_needs(world: World) -> None:
    world.node("a", offers=("rack:a",))
    job = world.submit(resources={"needs": ["data:x", "rack:a"]})
    assert world.run_one().placed == 0
    assert world.job(job).wait_reason == "no ready node offers data:x"
    assert world.job(job).wait_code == "needs"
    world.node("b", offers=("data:x", "rack:a"))
    assert world.run_one().placed == 1
    assert [part.node_name for part in world.assignments(job)] == ["b"]


def test_without_a_node_a_job_waits_with_a_reason(world: World) -> None:
    job = world.submit()
    report = world.run_one()
    assert (report.placed, report.waiting) == (0, 1)
    assert world.job(job).wait_reason == "no node is registered yet"


def test_a_job_is_spread_over_nodes_only_on_request(world: World) -> None:
    world.node("a", 2)
    world.node("b", 2)
    job = world.submit(4)
    world.run_one()
    assert world.job(job).wait_reason == "needs 4 devices on one node; the largest ready now has 2"


def test_a_node_without_heartbeat_for_a_lease_gets_no_work(world: World) -> None:
    world.node("n")
    world.silence("n", 61)
    job = world.submit()
    world.run_one()
    assert world.state(job) is JobState.QUEUED
    world.hear("n")
    world.run_one()
    assert world.state(job) is JobState.STARTING


def test_a_draining_node_gets_no_work(world: World) -> None:
    world.node("n")
    with world.database.jobs() as session:
        nodes.set_draining(session, "n", True)
    job = world.submit()
    world.run_one()
    assert world.state(job) is JobState.QUEUED


def test_positions_in_the_queue_are_written_only_if_they_changed(world: World) -> None:
    job = world.submit()
    world.run_one()
    version = world.job(job).version
    world.run_one()
    assert world.job(job).version == version


def test_a_job_cancelled_between_the_read_and_the_write_is_not_placed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.node("n")
    job = world.submit()

    def cancelled_meanwhile(snapshot: ClusterState) -> Plan:
        plan = decide(snapshot)
        with world.database.jobs() as session:
            stopping.cancel(session, job, "a")
        return plan

    monkeypatch.setattr(cycle_module, "decide", cancelled_meanwhile)
    assert world.run_one().placed == 0
    assert world.state(job) is JobState.CANCELLED
    assert world.notifications.take() == []
    assert world.held() == []


def test_a_job_that_cannot_be_placed_does_not_keep_others_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.node("n")
    bad, good = world.submit(), world.submit()
    real = attempts.place

    def fails_for_one(session: object, job_id: str, *args: object, **options: object) -> object:
        if job_id == bad:
            raise RuntimeError("an unexpected row")
        return real(session, job_id, *args, **options)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(attempts, "place", fails_for_one)
    report = world.run_one()
    assert report.failed == [f"place {bad}"]
    assert world.state(good) is JobState.STARTING


def test_two_schedulers_at_once_place_every_job_once(world: World) -> None:
    """The two do not take turns: each writes as if it alone held the lease (F25)."""
    for name in "abc":
        world.node(name, 4)
    queued = [world.submit(2) for _ in range(8)]
    notifiers = [Notifications(), Notifications(), Notifications()]
    start = threading.Barrier(3)

    def schedule(number: int) -> None:
        one = cycle_module.Cycle(
            world.database,
            notifiers[number],
            world.timings,
            lambda: False,
            writing=world.database.jobs,
            renumber=True,
            expires=True,
            remembered=Remembered(),
            ends_at=1e18,
            clock=lambda: 0,
        )
        start.wait()
        one.run()

    threads = [threading.Thread(target=schedule, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    world.run_one()
    placed = [job for job in queued if world.state(job) is JobState.STARTING]
    assert len(placed) == 6
    assert all(len(world.assignments(job)) == (1 if job in placed else 0) for job in queued)
    assert len(world.held()) == 12
    sent = [
        message for notifier in notifiers for message in notifier.sent
    ] + world.notifications.sent
    assert len(sent) == 6


# -- lease of the cycle
# --------------------------------------------------------------------------------------------------


def test_a_notification_is_forwarded_to_the_holder_of_the_lease(
    world: World,
) -> None:
    world.node("n")
    job = world.submit()
    with world.database.jobs() as session:
        assert scheduler_lease.take(session, "two", ttl_seconds=10)
    assert world.run_one("one", woken=True) == CycleReport(held=False)
    assert world.state(job) is JobState.QUEUED
    with world.database.jobs() as session:
        assert scheduler_lease.give_back(session, "two")  # notified


def test_a_cycle_without_notification_is_not_forwarded(world: World) -> None:
    with world.database.jobs() as session:
        scheduler_lease.take(session, "two", ttl_seconds=10)
    world.run_one("one")
    with world.database.jobs() as session:
        assert not scheduler_lease.give_back(session, "two")


def test_a_notification_during_a_cycle_starts_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def notified_meanwhile(snapshot: ClusterState) -> Plan:
        world.run_one("two", woken=True)
        return decide(snapshot)

    monkeypatch.setattr(cycle_module, "decide", notified_meanwhile)
    assert world.run_one("one").again


def test_a_dead_scheduler_delays_others_ten_seconds_at_most(
    world: World,
) -> None:
    with world.database.jobs() as session:
        scheduler_lease.take(session, "dead", ttl_seconds=reconcile.HOLD_SECONDS)
    assert reconcile.HOLD_SECONDS <= 10
    with world.database.jobs() as session:
        session.execute(text("UPDATE scheduler_lease SET expires_at = expires_at - 10.001"))
    assert world.run_one("one").held


def test_a_lease_from_before_the_clock_was_set_back_delays_no_scheduler(
    world: World,
) -> None:
    with world.database.jobs() as session:
        scheduler_lease.take(session, "dead", ttl_seconds=reconcile.HOLD_SECONDS)
    with world.database.jobs() as session:  # as if the clock showed an hour less
        session.execute(text("UPDATE scheduler_lease SET expires_at = expires_at + 3600"))
    assert world.run_one("one").held


def test_a_cycle_releases_its_lease_also_after_a_failure(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise LockstepError(ErrorCode.UNAVAILABLE, "the database does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(attempts, "expired", fail)
        with pytest.raises(LockstepError):
            world.run_one("one")
    assert world.run_one("two").held


@pytest.mark.parametrize("code", [ErrorCode.UNAVAILABLE, ErrorCode.STORAGE_FULL])
def test_after_a_database_error_the_next_cycle_places_the_waiting_jobs(
    world: World, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    world.node("n", 2)
    first, second = world.submit(), world.submit()
    tried = []

    def refuse(*_args: object, **_options: object) -> None:
        tried.append(1)
        raise LockstepError(code, "no write is possible")

    with monkeypatch.context() as patched:
        patched.setattr(attempts, "place", refuse)
        with pytest.raises(LockstepError):
            world.run_one()
    assert len(tried) == 1
    assert (world.state(first), world.state(second)) == (JobState.QUEUED, JobState.QUEUED)
    world.run_one()
    assert (world.state(first), world.state(second)) == (JobState.STARTING, JobState.STARTING)


def test_a_cycle_whose_time_is_over_stops_and_requests_another(world: World) -> None:
    world.node("n")
    first, second = world.submit(), world.submit()
    clock = iter([0.0, 0.0, 99.0, 99.0, 99.0, 99.0, 99.0])
    report = world.run_one(clock=lambda: next(clock))
    assert report.again
    assert (world.state(first), world.state(second)) == (JobState.STARTING, JobState.QUEUED)
    world.run_one()
    assert world.state(second) is JobState.STARTING


def test_a_scheduler_that_stops_releases_its_lease_at_once(world: World) -> None:
    world.node("n")
    job = world.submit()
    world.run_one("one", stopping=lambda: True)
    assert world.state(job) is JobState.QUEUED
    assert world.run_one("two").held
    assert world.state(job) is JobState.STARTING


# -- the queue
# --------------------------------------------------------------------------------------------------


def test_a_long_queue_is_written_in_short_transactions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued = [world.submit() for _ in range(7)]
    monkeypatch.setattr(cycle_module, "WAITING_WRITES_BATCH", 2)
    sizes: list[int] = []
    real = cycle_module.set_waiting

    def counted(session: Session, waiting: Mapping[str, Waiting]) -> None:
        sizes.append(len(waiting))
        real(session, waiting)

    monkeypatch.setattr(cycle_module, "set_waiting", counted)
    world.run_one()
    assert sizes == [2, 2, 2, 1]
    assert [world.job(job).wait_position for job in queued] == [1, 2, 3, 4, 5, 6, 7]


def test_a_changed_position_is_written_late_and_a_new_one_at_once(
    world: World,
) -> None:
    first, second = world.submit(), world.submit()
    world.run_one()
    with world.database.jobs() as session:
        stopping.cancel(session, first, "bob")
    new = world.submit(priority=90)
    world.run_one(renumber=False)
    assert world.job(new).wait_position == 1
    assert world.job(second).wait_position == 2, "not yet its turn"
    assert world.job(new).wait_reason
    third = world.submit()
    world.run_one(renumber=False)
    assert world.job(third).wait_position == 3
    with world.database.jobs() as session:
        stopping.cancel(session, new, "bob")
    world.run_one(renumber=False)
    assert [world.job(job).wait_position for job in (second, third)] == [2, 3], (
        "both have moved, no row was written"
    )
    world.run_one()
    assert [world.job(job).wait_position for job in (second, third)] == [1, 2]


def test_priority_goes_before_age(world: World) -> None:
    with world.database.jobs() as session:
        assert session.scalars(select(JobRow)).first() is None
    old, urgent = world.submit(), world.submit(priority=90)
    world.run_one()
    assert [world.job(job).wait_position for job in (old, urgent)] == [2, 1]


# -- removal of old rows
# --------------------------------------------------------------------------------------------------


def _ended_long_ago(world: World, **retention: int) -> str:
    job = world.submit(retention=retention)
    with world.database.jobs() as session:
        stopping.cancel(session, job, "ada")
        session.execute(update(JobRow).where(JobRow.id == job).values(finished_at=0.0))
    return job


def _expired(world: World, job: str) -> list[str]:
    with world.database.read_jobs() as session:
        found = session.scalars(
            select(EventRow).where(EventRow.job_id == job, EventRow.kind == "expired")
        )
        return sorted(event.data["what"] for event in found)


def test_a_cycle_deletes_expired_data_with_an_event_of_its_job(world: World) -> None:
    both, one, none = (
        _ended_long_ago(world, **asked)
        for asked in ({"logs_days": 1, "metrics_days": 9}, {"logs_days": 9}, {})
    )
    assert world.run_one(expires=False).expired == 0
    assert world.run_one().expired == 3
    assert [_expired(world, job) for job in (both, one, none)] == [
        ["logs", "metrics"],
        ["logs"],
        [],
    ]
    assert world.run_one().expired == 0


def test_one_that_cannot_be_deleted_does_not_keep_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = _ended_long_ago(world, logs_days=1), _ended_long_ago(world, logs_days=1)
    expire = retention.expire

    def fails(database: Database, due: retention.DueDeletion, go_on: Callable[[], bool]) -> bool:
        if due.job_id == bad:
            raise RuntimeError("a chunk that cannot be deleted")
        return expire(database, due, go_on)

    monkeypatch.setattr(retention, "expire", fails)
    report = world.run_one()
    assert (report.expired, report.failed) == (1, [f"expire {bad}"])
    assert _expired(world, good) == ["logs"]


def test_deletion_takes_a_part_of_a_cycle_and_continues_in_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs_due = [_ended_long_ago(world, logs_days=1) for _job in range(3)]
    seconds = 0.0

    def clock() -> float:
        nonlocal seconds
        seconds += cycle_module.EXPIRE_SECONDS / 4
        return seconds

    monkeypatch.setattr(reconcile, "WORK_SECONDS", 1e9)
    counts = [world.run_one(clock=clock).expired for _pass in range(6)]
    assert max(counts) < 3
    assert sum(counts) == 3
    assert all(_expired(world, job) == ["logs"] for job in jobs_due)
