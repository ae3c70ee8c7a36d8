"""Pause, resume and requeue of jobs, beside cancels (``tests.storage.test_jobs``)."""

from __future__ import annotations

import contextlib

import pytest

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.lifecycle import Intent, JobState
from lockstep.domain.life.outcomes import Reason
from lockstep.storage.db.database import Database
from lockstep.storage.jobs import stopping
from tests.storage import scenes


def pause(database: Database, job_id: str) -> JobState:
    with database.jobs() as session:
        return stopping.pause(session, job_id, "ada").state


def resume(database: Database, job_id: str) -> JobState:
    with database.jobs() as session:
        return stopping.resume(session, job_id, "bob").state


def test_a_queued_job_is_paused_and_resumed_with_its_age(database: Database) -> None:
    job_id = scenes.submit(database)
    before = scenes.job_of(database, job_id)
    assert pause(database, job_id) is JobState.PAUSED
    with database.jobs() as session:
        assert stopping.resume(session, job_id, "bob").created_at == before.created_at
    assert scenes.kinds(database, job_id) == ["submitted", "paused", "unpaused"]
    assert scenes.state_of(database, job_id) is JobState.QUEUED


def test_a_running_job_is_paused_after_its_stop_and_uses_no_retry(database: Database) -> None:
    claimed = scenes.run(database)
    assert pause(database, claimed.job_id) is JobState.RUNNING
    assert pause(database, claimed.job_id) is JobState.RUNNING
    assert scenes.renew(database, claimed) == {claimed.assignment_id: Intent.PAUSE}
    assert scenes.end(database, claimed, Reason.PAUSED)
    job = scenes.job_of(database, claimed.job_id)
    assert (job.state, job.intent, job.charged_attempts) == (JobState.PAUSED, None, 0)
    assert scenes.kinds(database, claimed.job_id).count("pause_requested") == 1
    assert resume(database, claimed.job_id) is JobState.QUEUED


def test_a_node_that_is_lost_during_a_pause_leaves_the_job_paused(database: Database) -> None:
    claimed = scenes.run(database)
    pause(database, claimed.job_id)
    scenes.end(database, claimed, Reason.LOST)
    job = scenes.job_of(database, claimed.job_id)
    assert (job.state, job.charged_attempts) == (JobState.PAUSED, 1)
    assert job.not_before > 0, "its old node may still run ranks when it is resumed"


def test_a_job_that_no_node_has_claimed_is_paused_at_once(database: Database) -> None:
    scenes.add_node(database)
    job_id = scenes.submit(database)
    scenes.placed_on(database, job_id)
    assert pause(database, job_id) is JobState.PAUSED
    assert scenes.free_devices(database) == [0, 1, 2, 3]


def test_a_resume_during_the_stop_queues_the_job_at_its_end(database: Database) -> None:
    claimed = scenes.run(database)
    pause(database, claimed.job_id)
    assert resume(database, claimed.job_id) is JobState.RUNNING
    scenes.end(database, claimed, Reason.PAUSED)
    assert scenes.state_of(database, claimed.job_id) is JobState.QUEUED


def test_a_cancel_replaces_a_pause_and_ends_a_paused_job(database: Database) -> None:
    claimed = scenes.run(database)
    pause(database, claimed.job_id)
    with database.jobs() as session:
        assert stopping.cancel(session, claimed.job_id, "ada").intent is Intent.CANCEL
    with pytest.raises(LockstepError, match="is being stopped"):
        pause(database, claimed.job_id)
    scenes.end(database, claimed, Reason.PAUSED)
    assert scenes.state_of(database, claimed.job_id) is JobState.CANCELLED
    queued = scenes.submit(database)
    pause(database, queued)
    with database.jobs() as session:
        assert stopping.cancel(session, queued, "ada").state is JobState.CANCELLED


def test_a_requeued_job_avoids_the_named_nodes_and_waits_for_nothing(database: Database) -> None:
    claimed = scenes.run(database)
    scenes.add_node(database, "n9")
    with pytest.raises(LockstepError, match="there is no node 'n8'"), database.jobs() as session:
        stopping.requeue(session, claimed.job_id, "ada", avoid=("n1", "n8"))
    with database.jobs() as session:
        stopping.requeue(session, claimed.job_id, "ada", avoid=("n1", "n9"))
    scenes.end(database, claimed, Reason.REQUEUED)
    job = scenes.job_of(database, claimed.job_id)
    assert (job.state, job.avoid_nodes) == (JobState.QUEUED, ["n1", "n9"])
    assert job.charged_attempts == 0


def test_an_agent_that_cannot_read_the_request_does_not_get_it(database: Database) -> None:
    claimed = scenes.run(database)
    scenes.add_node(database, offers=["kind:cpu"])
    for action in (stopping.pause, stopping.requeue):
        refused = pytest.raises(LockstepError, match="the agent of n1 is of a version")
        with refused, database.jobs() as session:
            action(session, claimed.job_id, "ada")
    assert scenes.job_of(database, claimed.job_id).intent is None
    with database.jobs() as session:
        assert stopping.cancel(session, claimed.job_id, "ada").intent is Intent.CANCEL


@pytest.mark.parametrize(
    ("state", "action", "why"),
    [
        (JobState.PAUSED, stopping.pause, "is paused already"),
        (JobState.PAUSED, stopping.requeue, "is paused"),
        (JobState.QUEUED, stopping.requeue, "waits already"),
        (JobState.QUEUED, stopping.resume, "is not paused"),
        (JobState.CANCELLED, stopping.pause, "an ended job cannot be changed"),
        (JobState.CANCELLED, stopping.resume, "an ended job cannot be changed"),
        (JobState.CANCELLED, stopping.requeue, "an ended job cannot be changed"),
    ],
)
def test_a_request_that_fits_no_state_is_refused(
    database: Database, state: JobState, action: object, why: str
) -> None:
    job_id = scenes.submit(database)
    with database.jobs() as session:
        if state is JobState.PAUSED:
            stopping.pause(session, job_id, "ada")
        if state is JobState.CANCELLED:
            stopping.cancel(session, job_id, "ada")
    assert callable(action)
    with pytest.raises(LockstepError, match=why) as refusal, database.jobs() as session:
        action(session, job_id, "ada")
    assert refusal.value.code is ErrorCode.CONFLICT
    assert scenes.state_of(database, job_id) is state


def test_of_a_pause_and_a_cancel_at_once_the_job_is_cancelled(database: Database) -> None:
    for _ in range(10):
        job_id = scenes.submit(database)

        def cancel(job_id: str = job_id) -> None:
            with database.jobs() as session:
                stopping.cancel(session, job_id, "ada")

        def stop(job_id: str = job_id) -> None:
            with contextlib.suppress(LockstepError):  # it was cancelled first
                pause(database, job_id)

        scenes.at_once(cancel, stop)
        assert scenes.state_of(database, job_id) is JobState.CANCELLED
