"""Recovery by a cycle of lost, overdue or incomplete work. On both databases."""

from __future__ import annotations

import pytest
from sqlalchemy import select, update

from lockstep.broker.messages import StartAssignment, StopAssignment
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.lifecycle import AssignmentState, Intent, JobState
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.scheduling.state import WaitCode
from lockstep.storage.attempts import attempts
from lockstep.storage.db.clock import db_now, now
from lockstep.storage.db.tables import (
    AssignmentRow,
    AttemptRow,
    EventRow,
    JobRow,
    NodeRow,
    SchedulerLeaseRow,
)
from lockstep.storage.jobs import jobs, stopping
from lockstep.storage.series import streams
from tests.scheduler.world import World

# -- losing
# --------------------------------------------------------------------------------------------------


def test_an_expired_lease_ends_the_attempt_as_lost_and_queues_the_job(
    world: World,
) -> None:
    world.node("bad")
    job = world.submit()
    world.run_one()
    claim = world.claim(job)
    world.silence("bad", 61)
    world.node("good", 8)
    report = world.run_one()
    row = world.job(job)
    assert report.lost == 1
    assert row.state is JobState.QUEUED
    assert (row.reason, row.avoid_nodes) == ("lost", ["bad"])
    assert world.sealed(claim.assignment_id)
    world.past_backoff(job)
    world.hear("bad", "good")
    world.run_one()
    assert world.assignments(job)[-1].node_name == "good"


def test_a_lost_job_is_not_placed_before_its_old_fence(world: World) -> None:
    world.node("bad")
    job = world.submit()
    world.run_one()
    world.claim(job)
    world.silence("bad", 61)
    world.node("good")
    world.run_one()
    world.run_one()
    row = world.job(job)
    assert row.state is JobState.QUEUED
    assert row.wait_reason is not None
    assert row.wait_reason.startswith("retries in ")  # 70 s after the last renewal, not 61


def test_a_node_that_never_answered_is_lost_from_the_placement_on(world: World) -> None:
    """The first heartbeat never comes (F26). No column holds a NULL that comparisons would miss."""
    world.node("n")
    job = world.submit(retry={"max": 0})  # no rank started, so no retry is used up
    world.run_one()
    world.silence("n", 61)
    assert world.run_one().lost == 1
    row = world.job(job)
    assert (row.state, row.reason, row.avoid_nodes) == (JobState.QUEUED, "unanswered", ["n"])
    assert row.charged_attempts == 0
    assert row.outcome is not None
    assert row.outcome["message"] == "node n never answered; not counted as a retry"
    assert world.held() == []


def test_a_node_that_died_after_claiming_keeps_its_devices_until_swept(
    world: World,
) -> None:
    world.node("n")
    job = world.submit()
    world.run_one()
    world.claim(job)
    world.silence("n", 61)
    world.run_one()
    assert len(world.held()) == 1
    assert world.assignments(job)[0].state is AssignmentState.ENDED


def test_a_lease_that_was_renewed_after_the_read_is_not_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.node("n")
    job = world.submit()
    world.run_one()
    claim = world.claim(job)
    world.silence("n", 61)
    look = attempts.expired

    def renewed_meanwhile(session: object) -> object:
        found = look(session)  # type: ignore[arg-type]  # passed on as it came
        with world.database.jobs() as writing:
            attempts.renew(writing, "n", {claim.assignment_id: claim.token}, lease_seconds=60)
        return found

    monkeypatch.setattr(attempts, "expired", renewed_meanwhile)
    assert world.run_one().lost == 0
    assert world.state(job) is JobState.RUNNING


def test_a_cancel_is_not_lost_when_the_attempt_is(world: World) -> None:
    world.node("n")
    job = world.submit()
    world.run_one()
    world.claim(job)
    with world.database.jobs() as session:
        stopping.cancel(session, job, "a")
    world.silence("n", 61)
    world.run_one()
    assert world.state(job) is JobState.CANCELLED


def test_a_budget_that_is_used_up_ends_the_job(world: World) -> None:
    world.node("n")
    job = world.submit(retry={"max": 0})
    world.run_one()
    world.claim(job)
    world.silence("n", 61)
    world.run_one()
    row = world.job(job)
    assert (row.state, row.reason) == (JobState.FAILED, "lost")


def test_after_an_outage_no_attempt_is_lost_for_one_lease(world: World) -> None:
    world.node("n")
    job = world.submit()
    world.run_one("one")
    world.claim(job)
    world.silence("n", 300)
    world.no_cycle_for(301)
    report = world.run_one("one")
    assert (report.spared, report.lost) == (1, 0)
    # Another scheduler spares the nodes no longer either, because it sees no gap.
    assert world.run_one("two").lost == 0
    assert world.state(job) is JobState.RUNNING
    # A node that stays silent is lost once that lease has expired.
    world.silence("n", 61)
    assert world.run_one("two").lost == 1


def test_a_short_gap_between_cycles_spares_no_lease(world: World) -> None:
    world.node("n")
    job = world.submit()
    world.run_one()
    world.claim(job)
    world.silence("n", 61)
    world.no_cycle_for(29)
    report = world.run_one()
    assert (report.spared, report.lost) == (0, 1)


def test_an_outage_shortens_no_lease(world: World) -> None:
    world.node("n")
    job = world.submit()
    world.run_one()
    claim = world.claim(job)
    world.no_cycle_for(301)
    with world.database.jobs() as session:
        attempts.renew(session, "n", {claim.assignment_id: claim.token}, lease_seconds=62)
    before = world.assignments(job)[0].lease_expires_at
    world.run_one()
    assert world.assignments(job)[0].lease_expires_at == before


def test_waits_from_before_the_clock_was_set_back_have_their_usual_limit(
    world: World,
) -> None:
    world.node("n")
    running, waiting = world.submit(), world.submit(gpus=8)
    world.run_one()
    world.claim(running)
    ahead = 3_600.0
    with world.database.jobs() as session:
        at = now(session)
        session.execute(
            update(AssignmentRow).values(lease_expires_at=AssignmentRow.lease_expires_at + ahead)
        )
        session.execute(update(NodeRow).values(seen_at=NodeRow.seen_at + ahead))
        session.execute(
            update(SchedulerLeaseRow).values(finished_at=SchedulerLeaseRow.finished_at + ahead)
        )
        session.execute(update(JobRow).where(JobRow.id == waiting).values(not_before=at + ahead))
    world.run_one()
    with world.database.read_jobs() as session:
        leases = session.scalars(select(AssignmentRow.lease_expires_at)).all()
        heard = session.scalars(select(NodeRow.seen_at)).all()
        job = jobs.get(session, waiting)
        assert job is not None
        assert all(at <= lease - world.timings.lease_seconds <= now(session) for lease in leases)
        assert all(at <= seen <= now(session) for seen in heard)
        assert at < job.not_before <= now(session) + world.timings.backoff_max_seconds


# -- stopping, sealing, repeated notifications
# --------------------------------------------------------------------------------------------------


def test_a_job_that_exceeds_its_timeout_is_stopped_once(world: World) -> None:
    world.node("n")
    job = world.submit(timeout_seconds=60)
    world.run_one()
    claim = world.claim(job)
    world.notifications.take()
    assert world.run_one().overdue == 0
    with world.database.jobs() as session:
        session.execute(update(AttemptRow).values(running_at=db_now() - 61))
    assert world.run_one().overdue == 1
    assert world.job(job).intent is Intent.TIMEOUT
    assert world.notifications.take() == [StopAssignment(claim.assignment_id, "n")]
    assert world.run_one().overdue == 0
    with world.database.read_jobs() as session:
        told = list(
            session.scalars(select(EventRow.message).where(EventRow.kind == "timeout_requested"))
        )
    assert told == [
        "it has run longer than its timeout of 60 s; grace 30 s (the time of a script that gives none)"
    ]


def test_a_script_with_time_to_stop_is_asked_that_much_before_its_timeout(world: World) -> None:
    world.node("n")
    job = world.submit(timeout_seconds=60, stop_grace_seconds=20)
    world.run_one()
    world.claim(job)
    with world.database.jobs() as session:
        session.execute(update(AttemptRow).values(running_at=db_now() - 35))
    assert world.run_one().overdue == 0
    with world.database.jobs() as session:
        session.execute(update(AttemptRow).values(running_at=db_now() - 41))
    assert world.run_one().overdue == 1
    with world.database.read_jobs() as session:
        texts = select(EventRow.message).where(EventRow.kind == "timeout_requested")
        assert session.scalars(texts).all() == [
            "its timeout of 60 s ends in 20 s; grace 20 s (stop_grace_seconds of the job)"
        ]


def test_an_open_stream_is_sealed_before_its_job_is_placed_again(
    world: World,
) -> None:
    """The node died between the end of the attempt in one database and the seal in the other."""
    world.node("n")
    job = world.submit()
    world.run_one()
    claim = world.claim(job)
    outcome = Outcome.of(Reason.SHUTDOWN, "the agent was stopped")
    with world.database.jobs() as session:
        assert attempts.end(
            session, claim.assignment_id, claim.token, outcome, timings=world.timings
        )
    assert not world.sealed(claim.assignment_id)
    report = world.run_one()
    assert (report.sealed, report.placed) == (1, 1)
    assert world.sealed(claim.assignment_id)


def test_a_running_attempts_stream_is_left_open(world: World) -> None:
    world.node("n")
    job = world.submit()
    world.run_one()
    claim = world.claim(job)
    assert world.run_one().sealed == 0
    assert not world.sealed(claim.assignment_id)


def test_while_streams_cannot_be_sealed_only_jobs_that_have_run_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.node("n")
    again = world.submit()
    world.run_one()
    claim = world.claim(again)
    outcome = Outcome.of(Reason.SHUTDOWN, "the agent was stopped")
    with world.database.jobs() as session:
        attempts.end(session, claim.assignment_id, claim.token, outcome, timings=world.timings)
    fresh = world.submit()

    def away(*_args: object, **_named: object) -> None:
        raise LockstepError(ErrorCode.UNAVAILABLE, "the series database does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(streams, "seal", away)
        world.run_one()
    assert world.state(fresh) is JobState.STARTING
    assert (world.state(again), world.job(again).wait_code) == (JobState.QUEUED, WaitCode.SEALING)
    world.run_one()
    assert world.state(again) is JobState.STARTING


def test_an_unclaimed_assignment_is_notified_again(world: World) -> None:
    world.node("n")
    job = world.submit()
    world.run_one()
    (part,) = world.assignments(job)
    world.notifications.take()
    world.run_one()
    assert world.notifications.take() == []  # too early
    world.silence("n", 6)
    world.run_one()
    assert world.notifications.take() == [StartAssignment(part.id, "n")]
    world.claim(job)
    world.run_one()
    assert world.notifications.take() == []


def test_leftovers_of_finished_jobs_change_nothing(world: World) -> None:
    world.node("n")
    job = world.submit()
    world.run_one()
    claim = world.claim(job)
    outcome = Outcome.of(Reason.SUCCEEDED, "done")
    with world.database.jobs() as session:
        attempts.end(session, claim.assignment_id, claim.token, outcome, timings=world.timings)
    world.run_one()
    version = world.job(job).version
    world.silence("n", 500)
    report = world.run_one()
    assert (report.lost, report.placed, report.overdue, report.notified_again) == (0, 0, 0, 0)
    assert (world.state(job), world.job(job).version) == (JobState.SUCCEEDED, version)
