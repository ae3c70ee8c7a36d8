"""What a pass does to the job database. Both databases; no broker, no Celery, no process."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import select, text, update

from broker.messages import StartAssignment, StopAssignment
from domain.errors import ErrorCode, LockstepError
from domain.lifecycle import AssignmentState, Intent, JobState
from domain.outcomes import Outcome, Reason
from domain.placement import place
from scheduler import passes as passes_module
from scheduler.passes import UNSEALED, Report, run_pass
from storage import attempts, jobs, nodes, passes, streams
from storage.clock import db_now
from storage.database import Database
from storage.tables import AttemptRow, DeviceRow, EventRow, JobRow
from tests.scheduler.world import Bells, World

# -- placing ---------------------------------------------------------------------------------------------------------


def test_a_queued_job_is_placed_and_its_node_rung_after_the_commit(world: World) -> None:
    world.node("n", 4)
    job = world.submit(2)
    report = world.make_pass()
    (part,) = world.assignments(job)
    assert report.placed == 1
    assert world.state(job) is JobState.STARTING
    assert (part.node_name, part.device_indices) == ("n", [0, 1])
    assert world.bells.take() == [StartAssignment(part.id, "n")]


def test_a_gang_that_does_not_fit_takes_no_device_and_says_what_it_waits_for(world: World) -> None:
    world.node("n", 4)
    first, second = world.submit(2), world.submit(4)
    world.make_pass()
    assert world.state(first) is JobState.STARTING
    waiting = world.job(second)
    assert waiting.state is JobState.QUEUED
    assert waiting.wait_position == 1
    assert waiting.wait_reason == "waits for 2 more free devices of type cpu (needs 4, 2 are free on n)"
    assert len(held(world.database)) == 2


def test_without_a_node_a_job_waits_and_says_so(world: World) -> None:
    job = world.submit()
    report = world.make_pass()
    assert (report.placed, report.waiting) == (0, 1)
    assert world.job(job).wait_reason == "no node is registered yet"


def test_a_job_is_never_spread_over_nodes_unless_it_asked_for_them(world: World) -> None:
    world.node("a", 2)
    world.node("b", 2)
    job = world.submit(4)
    world.make_pass()
    assert world.job(job).wait_reason == "needs 4 devices on one node; the largest ready now has 2"


def test_a_node_not_heard_for_a_lease_gets_no_work(world: World) -> None:
    world.node("n")
    world.silence("n", 61)
    job = world.submit()
    world.make_pass()
    assert world.state(job) is JobState.QUEUED
    world.hear("n")
    world.make_pass()
    assert world.state(job) is JobState.STARTING


def test_a_draining_node_gets_no_work(world: World) -> None:
    world.node("n")
    with world.database.jobs() as session:
        nodes.set_draining(session, "n", True)
    job = world.submit()
    world.make_pass()
    assert world.state(job) is JobState.QUEUED


def test_places_in_the_queue_are_written_only_where_they_changed(world: World) -> None:
    job = world.submit()
    world.make_pass()
    version = world.job(job).version
    world.make_pass()
    assert world.job(job).version == version


def test_a_job_cancelled_between_the_look_and_the_write_is_not_placed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.node("n")
    job = world.submit()
    decide = place

    def cancelled_meanwhile(*args: object, **options: object) -> object:
        decisions = decide(*args, **options)  # type: ignore[arg-type]  # passed on as they came
        with world.database.jobs() as session:
            jobs.cancel(session, job, "a")
        return decisions

    monkeypatch.setattr(passes_module, "place", cancelled_meanwhile)
    assert world.make_pass().placed == 0
    assert world.state(job) is JobState.CANCELLED
    assert world.bells.take() == []
    assert held(world.database) == []


def test_a_job_that_cannot_be_placed_does_not_keep_others_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.node("n")
    bad, good = world.submit(), world.submit()
    real = attempts.place

    def fails_for_one(session: object, job_id: str, *args: object, **options: object) -> object:
        if job_id == bad:
            raise RuntimeError("a row that nobody thought of")
        return real(session, job_id, *args, **options)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(attempts, "place", fails_for_one)
    report = world.make_pass()
    assert report.failed == [f"place {bad}"]
    assert world.state(good) is JobState.STARTING


def test_two_schedulers_at_once_place_every_job_once(world: World) -> None:
    """They do not even take turns: each writes as if it alone had the pass (F25)."""
    for name in "abc":
        world.node(name, 4)
    queued = [world.submit(2) for _ in range(8)]
    bells = [Bells(), Bells(), Bells()]
    start = threading.Barrier(3)

    def schedule(number: int) -> None:
        one = passes_module._Pass(
            world.database, bells[number], world.timings, lambda: False, ends_at=1e18, clock=lambda: 0
        )
        start.wait()
        one.run()

    threads = [threading.Thread(target=schedule, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    world.make_pass()
    placed = [job for job in queued if world.state(job) is JobState.STARTING]
    assert len(placed) == 6
    assert all(len(world.assignments(job)) == (1 if job in placed else 0) for job in queued)
    assert len(held(world.database)) == 12
    rung = [message for bell in bells for message in bell.rung] + world.bells.rung
    assert len(rung) == 6


def held(database: Database) -> list[tuple[str, int]]:
    with database.read_jobs() as session:
        statement = select(DeviceRow.node_name, DeviceRow.index).where(DeviceRow.assignment_id.is_not(None))
        return [(name, index) for name, index in session.execute(statement)]


# -- whose pass it is ------------------------------------------------------------------------------------------------


def test_a_pass_that_another_scheduler_has_is_left_to_it_and_a_bell_is_passed_on(world: World) -> None:
    world.node("n")
    job = world.submit()
    with world.database.jobs() as session:
        assert passes.take(session, "two", ttl_seconds=10)
    assert world.make_pass("one", rang=True) == Report(held=False)
    assert world.state(job) is JobState.QUEUED
    with world.database.jobs() as session:
        assert passes.give_back(session, "two")  # asked to look again


def test_a_pass_that_time_alone_asked_for_is_not_passed_on(world: World) -> None:
    with world.database.jobs() as session:
        passes.take(session, "two", ttl_seconds=10)
    world.make_pass("one")
    with world.database.jobs() as session:
        assert not passes.give_back(session, "two")


def test_a_bell_during_a_pass_is_answered_by_another(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    decide = place

    def rung_meanwhile(*args: object, **options: object) -> object:
        world.make_pass("two", rang=True)
        return decide(*args, **options)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(passes_module, "place", rung_meanwhile)
    assert world.make_pass("one").again


def test_a_scheduler_that_died_in_its_pass_holds_others_up_for_ten_seconds_at_most(world: World) -> None:
    with world.database.jobs() as session:
        passes.take(session, "dead", ttl_seconds=passes_module.HOLD_SECONDS)
    assert passes_module.HOLD_SECONDS <= 10
    with world.database.jobs() as session:
        session.execute(text("UPDATE passes SET expires_at = expires_at - 10.001"))
    assert world.make_pass("one").held


def test_a_pass_gives_itself_back_also_when_it_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise LockstepError(ErrorCode.UNAVAILABLE, "the database does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(attempts, "expired", fail)
        with pytest.raises(LockstepError):
            world.make_pass("one")
    assert world.make_pass("two").held


def test_a_pass_whose_time_is_over_stops_and_asks_for_another(world: World) -> None:
    world.node("n")
    first, second = world.submit(), world.submit()
    clock = iter([0.0, 0.0, 99.0, 99.0, 99.0, 99.0, 99.0])
    report = world.make_pass(clock=lambda: next(clock))
    assert report.again
    assert (world.state(first), world.state(second)) == (JobState.STARTING, JobState.QUEUED)
    world.make_pass()
    assert world.state(second) is JobState.STARTING


def test_a_scheduler_that_is_stopping_gives_the_pass_back_at_once(world: World) -> None:
    world.node("n")
    job = world.submit()
    world.make_pass("one", stopping=lambda: True)
    assert world.state(job) is JobState.QUEUED
    assert world.make_pass("two").held
    assert world.state(job) is JobState.STARTING


# -- losing ----------------------------------------------------------------------------------------------------------


def test_an_expired_lease_ends_the_attempt_as_lost_and_queues_the_job_to_run_elsewhere(world: World) -> None:
    world.node("bad")
    job = world.submit()
    world.make_pass()
    claim = world.claim(job)
    world.silence("bad", 61)
    world.node("good", 8)
    report = world.make_pass()
    row = world.job(job)
    assert report.lost == 1
    assert row.state is JobState.QUEUED
    assert (row.reason, row.avoid_nodes) == ("lost", ["bad"])
    assert world.sealed(claim.assignment_id)
    world.past_backoff(job)
    world.hear("bad", "good")
    world.make_pass()
    assert world.assignments(job)[-1].node_name == "good"


def test_a_lost_job_is_not_placed_before_its_old_node_has_certainly_stopped(world: World) -> None:
    world.node("bad")
    job = world.submit()
    world.make_pass()
    world.claim(job)
    world.silence("bad", 61)
    world.node("good")
    world.make_pass()
    world.make_pass()
    row = world.job(job)
    assert row.state is JobState.QUEUED
    assert row.wait_reason is not None
    assert row.wait_reason.startswith("tries again in ")  # 70 s after the last renewal, not 61


def test_a_node_that_never_answered_is_lost_from_the_placement_on(world: World) -> None:
    """The first heartbeat never comes (F26): there is no NULL that no comparison finds."""
    world.node("n")
    job = world.submit()
    world.make_pass()
    world.silence("n", 61)
    assert world.make_pass().lost == 1
    row = world.job(job)
    assert row.state is JobState.QUEUED
    assert row.outcome is not None
    assert row.outcome["message"] == "node n never answered"
    assert held(world.database) == []


def test_a_node_that_died_after_claiming_keeps_its_devices_until_it_has_swept_them(world: World) -> None:
    world.node("n")
    job = world.submit()
    world.make_pass()
    world.claim(job)
    world.silence("n", 61)
    world.make_pass()
    assert len(held(world.database)) == 1
    assert world.assignments(job)[0].state is AssignmentState.ENDED


def test_a_lease_that_was_renewed_after_the_look_is_not_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.node("n")
    job = world.submit()
    world.make_pass()
    claim = world.claim(job)
    world.silence("n", 61)
    look = attempts.expired

    def renewed_meanwhile(session: object) -> object:
        found = look(session)  # type: ignore[arg-type]  # passed on as it came
        with world.database.jobs() as writing:
            attempts.renew(writing, "n", {claim.assignment_id: claim.token}, lease_seconds=60)
        return found

    monkeypatch.setattr(attempts, "expired", renewed_meanwhile)
    assert world.make_pass().lost == 0
    assert world.state(job) is JobState.RUNNING


def test_a_cancel_is_not_lost_when_the_attempt_is(world: World) -> None:
    world.node("n")
    job = world.submit()
    world.make_pass()
    world.claim(job)
    with world.database.jobs() as session:
        jobs.cancel(session, job, "a")
    world.silence("n", 61)
    world.make_pass()
    assert world.state(job) is JobState.CANCELLED


def test_a_budget_that_is_used_up_ends_the_job(world: World) -> None:
    world.node("n")
    job = world.submit(retry={"max": 0})
    world.make_pass()
    world.claim(job)
    world.silence("n", 61)
    world.make_pass()
    row = world.job(job)
    assert (row.state, row.reason) == (JobState.FAILED, "lost")


def test_after_an_outage_of_the_service_nobody_is_lost_for_a_whole_lease(world: World) -> None:
    world.node("n")
    job = world.submit()
    world.make_pass("one")
    world.claim(job)
    world.silence("n", 300)
    world.no_pass_for(301)
    report = world.make_pass("one")
    assert (report.spared, report.lost) == (1, 0)
    # Nor by another scheduler, which sees no gap any more.
    assert world.make_pass("two").lost == 0
    assert world.state(job) is JobState.RUNNING
    # But a node that stays silent is lost once that lease has run out.
    world.silence("n", 61)
    assert world.make_pass("two").lost == 1


def test_a_short_gap_between_passes_spares_nobody(world: World) -> None:
    world.node("n")
    job = world.submit()
    world.make_pass()
    world.claim(job)
    world.silence("n", 61)
    world.no_pass_for(29)
    report = world.make_pass()
    assert (report.spared, report.lost) == (0, 1)


def test_an_outage_shortens_no_lease(world: World) -> None:
    world.node("n")
    job = world.submit()
    world.make_pass()
    claim = world.claim(job)
    with world.database.jobs() as session:
        attempts.renew(session, "n", {claim.assignment_id: claim.token}, lease_seconds=600)
    before = world.assignments(job)[0].lease_expires_at
    world.no_pass_for(301)
    world.make_pass()
    assert world.assignments(job)[0].lease_expires_at == before


# -- stopping, sealing, ringing again --------------------------------------------------------------------------------


def test_a_job_that_ran_longer_than_its_timeout_is_asked_to_stop_once(world: World) -> None:
    world.node("n")
    job = world.submit(timeout_seconds=60)
    world.make_pass()
    claim = world.claim(job)
    world.bells.take()
    assert world.make_pass().overdue == 0
    with world.database.jobs() as session:
        session.execute(update(AttemptRow).values(running_at=db_now() - 61))
    assert world.make_pass().overdue == 1
    assert world.job(job).intent is Intent.TIMEOUT
    assert world.bells.take() == [StopAssignment(claim.assignment_id, "n")]
    assert world.make_pass().overdue == 0
    with world.database.read_jobs() as session:
        told = list(session.scalars(select(EventRow.message).where(EventRow.kind == "timeout_requested")))
    assert told == ["it has run longer than its timeout of 60 s"]


def test_what_an_ended_attempt_left_open_is_sealed_before_its_job_is_placed_again(world: World) -> None:
    """The node died between ending the attempt in one database and sealing its stream in the other."""
    world.node("n")
    job = world.submit()
    world.make_pass()
    claim = world.claim(job)
    outcome = Outcome.of(Reason.SHUTDOWN, "the agent was stopped")
    with world.database.jobs() as session:
        assert attempts.end(session, claim.assignment_id, claim.token, outcome, timings=world.timings)
        assert attempts.release(session, claim.assignment_id, "n")
    assert not world.sealed(claim.assignment_id)
    report = world.make_pass()
    assert (report.sealed, report.placed) == (1, 1)
    assert world.sealed(claim.assignment_id)


def test_a_running_attempts_stream_is_left_open(world: World) -> None:
    world.node("n")
    job = world.submit()
    world.make_pass()
    claim = world.claim(job)
    assert world.make_pass().sealed == 0
    assert not world.sealed(claim.assignment_id)


def test_while_streams_cannot_be_sealed_only_jobs_that_have_run_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.node("n")
    again = world.submit()
    world.make_pass()
    claim = world.claim(again)
    outcome = Outcome.of(Reason.SHUTDOWN, "the agent was stopped")
    with world.database.jobs() as session:
        attempts.end(session, claim.assignment_id, claim.token, outcome, timings=world.timings)
        attempts.release(session, claim.assignment_id, "n")
    fresh = world.submit()

    def away(*_args: object) -> None:
        raise LockstepError(ErrorCode.UNAVAILABLE, "the series database does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(streams, "seal", away)
        world.make_pass()
    assert world.state(fresh) is JobState.STARTING
    assert (world.state(again), world.job(again).wait_reason) == (JobState.QUEUED, UNSEALED)
    world.make_pass()
    assert world.state(again) is JobState.STARTING


def test_an_assignment_that_nobody_claimed_is_rung_again(world: World) -> None:
    world.node("n")
    job = world.submit()
    world.make_pass()
    (part,) = world.assignments(job)
    world.bells.take()
    world.make_pass()
    assert world.bells.take() == []  # too soon
    world.silence("n", 6)
    world.make_pass()
    assert world.bells.take() == [StartAssignment(part.id, "n")]
    world.claim(job)
    world.make_pass()
    assert world.bells.take() == []


def test_what_was_left_of_finished_jobs_changes_nothing(world: World) -> None:
    world.node("n")
    job = world.submit()
    world.make_pass()
    claim = world.claim(job)
    outcome = Outcome.of(Reason.SUCCEEDED, "done")
    with world.database.jobs() as session:
        attempts.end(session, claim.assignment_id, claim.token, outcome, timings=world.timings)
    world.make_pass()
    version = world.job(job).version
    world.silence("n", 500)
    report = world.make_pass()
    assert (report.lost, report.placed, report.overdue, report.rung_again) == (0, 0, 0, 0)
    assert (world.state(job), world.job(job).version) == (JobState.SUCCEEDED, version)


def test_a_long_queue_is_written_in_short_transactions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    queued = [world.submit() for _ in range(7)]
    monkeypatch.setattr(passes_module, "WAITING_WRITES_BATCH", 2)
    sizes: list[int] = []
    real = jobs.set_waiting

    def counted(session: object, waiting: dict[str, tuple[int, str]]) -> None:
        sizes.append(len(waiting))
        real(session, waiting)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(jobs, "set_waiting", counted)
    run_pass(world.database, world.bells, world.timings, owner="one")
    assert sizes == [2, 2, 2, 1]
    assert [world.job(job).wait_position for job in queued] == [1, 2, 3, 4, 5, 6, 7]


def test_priority_goes_before_age(world: World) -> None:
    with world.database.jobs() as session:
        assert session.scalars(select(JobRow)).first() is None
    old, urgent = world.submit(), world.submit(priority=90)
    world.make_pass()
    assert [world.job(job).wait_position for job in (old, urgent)] == [2, 1]
