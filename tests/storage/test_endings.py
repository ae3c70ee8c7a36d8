"""Ends of attempts, and their effect on the jobs."""

from __future__ import annotations

import pytest

from lockstep.domain.life.lifecycle import AssignmentState, JobState
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.life.timings import Timings
from lockstep.storage.attempts import attempts
from lockstep.storage.db.clock import now
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import AssignmentRow
from lockstep.storage.jobs import stopping
from tests.storage import scenes


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        (Reason.SUCCEEDED, JobState.SUCCEEDED),
        (Reason.USER_ERROR, JobState.FAILED),
        (Reason.TIMED_OUT, JobState.FAILED),
        (Reason.CANCELLED, JobState.CANCELLED),
        (Reason.KILLED, JobState.QUEUED),
        (Reason.SHUTDOWN, JobState.QUEUED),
    ],
)
def test_an_outcome_moves_its_job_once(database: Database, reason: Reason, state: JobState) -> None:
    claimed = scenes.run(database)
    assert scenes.end(database, claimed, reason, last_step=7)
    job = scenes.job_of(database, claimed.job_id)
    assert (job.state, job.reason) == (state, reason)
    assert Outcome.model_validate(job.outcome).last_step == 7
    assert (job.finished_at is None) == (state is JobState.QUEUED)
    assert not scenes.end(database, claimed, reason)
    assert scenes.job_of(database, claimed.job_id).version == job.version


def test_an_exception_with_a_nul_ends_its_job_on_either_database(database: Database) -> None:
    """PostgreSQL stores no NUL in text. An end that it refused would be repeated forever."""
    claimed = scenes.run(database)
    told = {"exception": "ValueError: a\0b", "traceback": "\0" * 8_000}
    with database.jobs() as session:
        outcome = Outcome.of(Reason.USER_ERROR, "rank 0 raised a\0b", **told)
        assert attempts.end(
            session, claimed.assignment_id, claimed.token, outcome, timings=scenes.QUICK
        )
    stored = Outcome.model_validate(scenes.job_of(database, claimed.job_id).outcome)
    assert {"exception": stored.exception, "traceback": stored.traceback} == told


def test_a_script_that_ends_before_it_was_seen_running_succeeds(database: Database) -> None:
    scenes.add_node(database)
    claimed = scenes.start(database, scenes.submit(database))
    assert scenes.end(database, claimed, Reason.SUCCEEDED)
    assert scenes.state_of(database, claimed.job_id) is JobState.SUCCEEDED
    assert scenes.kinds(database, claimed.job_id) == ["submitted", "placed", "running", "succeeded"]


def test_a_gang_succeeds_when_every_node_has(database: Database) -> None:
    first, second = scenes.gang(database)
    assert scenes.end(database, first, Reason.SUCCEEDED)
    assert scenes.state_of(database, first.job_id) is JobState.STARTING
    assert scenes.renew(database, second) == {second.assignment_id: None}
    assert scenes.end(database, second, Reason.SUCCEEDED)
    assert scenes.state_of(database, first.job_id) is JobState.SUCCEEDED


def test_the_first_node_that_fails_fails_the_gang_once_the_other_has_sent_all(
    database: Database,
) -> None:
    first, second = scenes.gang(database)
    assert scenes.end(database, second, Reason.USER_ERROR)
    assert scenes.state_of(database, first.job_id) is JobState.STARTING
    assert scenes.renew(database, first) == {first.assignment_id: None}
    assert scenes.end(database, first, Reason.SUCCEEDED)
    assert scenes.state_of(database, first.job_id) is JobState.FAILED
    with database.read_jobs() as session:
        assert [held.state for held in attempts.held(session, "n1")] == [AssignmentState.ENDED]


def test_a_requested_cancel_wins_over_a_retry_but_not_over_a_success(database: Database) -> None:
    killed = scenes.run(database)
    succeeded = scenes.start(database, scenes.submit(database), (2, 3))
    with database.jobs() as session:
        stopping.cancel(session, killed.job_id, "ada")
        stopping.cancel(session, succeeded.job_id, "ada")
    scenes.end(database, killed, Reason.KILLED)
    scenes.end(database, succeeded, Reason.SUCCEEDED)
    assert scenes.state_of(database, killed.job_id) is JobState.CANCELLED
    assert scenes.state_of(database, succeeded.job_id) is JobState.SUCCEEDED


def test_a_retry_waits_for_its_backoff_and_doubles_it(database: Database) -> None:
    timings = Timings(backoff_seconds=64.0, backoff_max_seconds=1_000.0)
    claimed = scenes.run(database)
    waits = []
    for _ in range(2):
        scenes.end(database, claimed, Reason.KILLED, timings=timings)
        scenes.release(database, claimed)
        with database.read_jobs() as session:
            waits.append(scenes.job_of(database, claimed.job_id).not_before - now(session))
        assert scenes.place(database, claimed.job_id) is None
        scenes.skip_backoff(database, claimed.job_id)
        claimed = scenes.start(database, claimed.job_id)
    assert 22 < waits[0] <= 64  # the upper half, minus the time of the test itself
    assert 54 < waits[1] <= 128
    assert waits[1] > waits[0]


def test_only_charged_attempts_use_up_the_budget(database: Database) -> None:
    claimed = scenes.run(database, retry={"max": 1})
    for reason in (Reason.SHUTDOWN, Reason.KILLED, Reason.SHUTDOWN, Reason.KILLED):
        assert scenes.state_of(database, claimed.job_id) is not JobState.FAILED
        scenes.end(database, claimed, reason)
        scenes.release(database, claimed)
        if scenes.state_of(database, claimed.job_id) is JobState.QUEUED:
            claimed = scenes.start(database, claimed.job_id)
    job = scenes.job_of(database, claimed.job_id)
    assert (job.state, job.charged_attempts, job.attempt_count) == (JobState.FAILED, 2, 4)


def test_nodes_that_failed_a_job_are_remembered(database: Database) -> None:
    claimed = scenes.run(database)
    scenes.end(database, claimed, Reason.STORAGE, node="n1")
    assert scenes.job_of(database, claimed.job_id).avoid_nodes == ["n1"]


def test_a_failure_of_the_jobs_own_blames_no_node(database: Database) -> None:
    claimed = scenes.run(database)
    scenes.end(database, claimed, Reason.KILLED, node="n1")
    assert scenes.job_of(database, claimed.job_id).avoid_nodes == []


def test_running_time_adds_up_over_attempts(database: Database) -> None:
    claimed = scenes.run(database, timeout_seconds=100)
    with database.jobs() as session:
        attempts.newest(session, [claimed.job_id])[claimed.job_id].running_at = now(session) - 30
    scenes.end(database, claimed, Reason.SHUTDOWN)
    scenes.release(database, claimed)
    again = scenes.start(database, claimed.job_id)
    assert again.timeout_left_seconds == pytest.approx(70, abs=5)


def test_a_lease_that_still_holds_is_not_lost(database: Database) -> None:
    claimed = scenes.run(database)
    with database.jobs() as session:
        assert not attempts.lose(
            session, claimed.assignment_id, claimed.token, timings=scenes.QUICK
        )
    scenes.expire(database, claimed.assignment_id)
    scenes.renew(database, claimed)
    with database.jobs() as session:
        assert not attempts.lose(
            session, claimed.assignment_id, claimed.token, timings=scenes.QUICK
        )
    assert scenes.state_of(database, claimed.job_id) is JobState.RUNNING


@pytest.mark.parametrize("scale", [1.0, 0.1, 10.0])
def test_a_lost_attempt_is_fenced_and_its_job_waits_for_its_ranks(
    database: Database, scale: float
) -> None:
    """Also if the scheduler has other timings than the agent that renewed the lease."""
    timings = Timings().scaled(scale)
    claimed = scenes.run(database)
    scenes.expire(database, claimed.assignment_id)
    with database.jobs() as session:
        expired_at = session.get_one(AssignmentRow, claimed.assignment_id).lease_expires_at
        assert attempts.lose(session, claimed.assignment_id, claimed.token, timings=timings)
    job = scenes.job_of(database, claimed.job_id)
    assert (job.state, job.reason, job.avoid_nodes) == (JobState.QUEUED, Reason.LOST, ["n1"])
    assert job.not_before >= expired_at + 10 * scale  # replace_after 70 s, lease 60 s
    assert scenes.renew(database, claimed) == {}
    assert not scenes.end(database, claimed, Reason.SUCCEEDED)
    assert scenes.free_devices(database) == [2, 3]  # a process may still run on them


def test_a_node_that_dies_before_its_first_heartbeat_is_lost(
    database: Database,
) -> None:
    scenes.add_node(database)
    job_id = scenes.submit(database)
    placed = scenes.placed_on(database, job_id)
    scenes.expire(database, placed.assignments[0].assignment_id)
    with database.jobs() as session:
        [gone] = attempts.expired(session)
        assert attempts.lose(session, gone.assignment_id, gone.token, timings=scenes.QUICK)
    assert scenes.state_of(database, job_id) is JobState.QUEUED
    assert scenes.claim(database, gone.assignment_id) is None
    assert scenes.free_devices(database) == [0, 1, 2, 3]  # no process was ever started on them


def test_a_lost_attempt_of_a_cancelled_job_ends_it(database: Database) -> None:
    claimed = scenes.run(database)
    with database.jobs() as session:
        stopping.cancel(session, claimed.job_id, "ada")
    scenes.expire(database, claimed.assignment_id)
    with database.jobs() as session:
        assert attempts.lose(session, claimed.assignment_id, claimed.token, timings=scenes.QUICK)
    assert scenes.state_of(database, claimed.job_id) is JobState.CANCELLED


def test_late_writes_of_an_old_attempt_do_not_affect_the_new_one(database: Database) -> None:
    old = scenes.run(database)
    scenes.expire(database, old.assignment_id)
    with database.jobs() as session:
        attempts.lose(session, old.assignment_id, old.token, timings=scenes.QUICK)
    scenes.skip_backoff(database, old.job_id)
    new = scenes.start(database, old.job_id, (2, 3))
    assert not scenes.end(database, old, Reason.USER_ERROR)
    assert scenes.release(database, old)
    assert scenes.free_devices(database) == [0, 1]
    assert scenes.renew(database, new) == {new.assignment_id: None}
    assert scenes.state_of(database, old.job_id) is JobState.STARTING
