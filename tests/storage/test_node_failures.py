"""Failures of nodes and their consequences, on both databases."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.life.timings import Timings
from lockstep.storage.attempts import attempts, events, nodes
from lockstep.storage.control import snapshots
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import NodeFailureRow
from tests.storage import scenes


def failures(database: Database) -> list[tuple[str, Reason]]:
    with database.read_jobs() as session:
        return [(failure.node, failure.reason) for failure in nodes.failures(session)]


@pytest.mark.parametrize("reason", [Reason.STORAGE, Reason.LAUNCH_FAILED])
def test_a_failure_that_the_agent_observed_is_kept(database: Database, reason: Reason) -> None:
    claimed = scenes.run(database)
    scenes.end(database, claimed, reason, node_failed=True)
    assert failures(database) == [("n1", reason)]


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.SUCCEEDED])
def test_an_outcome_alone_is_not(database: Database, reason: Reason) -> None:
    scenes.end(database, scenes.run(database), reason)
    assert failures(database) == []


@pytest.mark.parametrize(
    "reason", [Reason.USER_ERROR, Reason.KILLED, Reason.SHUTDOWN, Reason.OUT_OF_MEMORY]
)
def test_a_failure_of_the_jobs_own_is_not(database: Database, reason: Reason) -> None:
    scenes.end(database, scenes.run(database), reason, node_failed=True)
    assert failures(database) == []


def test_a_node_that_was_declared_lost_has_a_failure(database: Database) -> None:
    claimed = scenes.run(database)
    scenes.expire(database, claimed.assignment_id)
    with database.jobs() as session:
        assert attempts.lose(session, claimed.assignment_id, claimed.token, timings=scenes.QUICK)
    assert failures(database) == [("n1", Reason.LOST)]


def test_a_node_that_could_not_renew_in_an_outage_has_no_failure(database: Database) -> None:
    """It stopped its ranks at their fence. The outage is the same for every node."""
    claimed = scenes.run(database, retry={"max": 0})
    scenes.end(database, claimed, Reason.CUT_OFF)
    assert scenes.state_of(database, claimed.job_id) is JobState.QUEUED
    assert failures(database) == []


def test_a_success_clears_only_the_failures_of_its_node(database: Database) -> None:
    scenes.end(database, scenes.run(database), Reason.STORAGE, node_failed=True)
    scenes.add_node(database, "n2")
    job = scenes.submit(database)
    placed = scenes.placed_on(database, job, ("n2", (0, 1)))
    other = scenes.claim(database, placed.assignments[0].assignment_id, "n2")
    assert other is not None
    scenes.end(database, other, Reason.LAUNCH_FAILED, node_failed=True)
    assert sorted(failures(database)) == [("n1", Reason.STORAGE), ("n2", Reason.LAUNCH_FAILED)]
    scenes.end(database, scenes.start(database, scenes.submit(database), (2, 3)), Reason.SUCCEEDED)
    assert failures(database) == [("n2", Reason.LAUNCH_FAILED)]


def test_a_job_that_fails_repeatedly_is_recorded_once(database: Database) -> None:
    claimed = scenes.run(database)
    for _ in range(3):
        scenes.end(database, claimed, Reason.STORAGE, node_failed=True)
        scenes.release(database, claimed)
        scenes.skip_backoff(database, claimed.job_id)
        claimed = scenes.start(database, claimed.job_id)
    assert len(failures(database)) == 1


def test_a_failure_of_long_ago_counts_no_more(database: Database) -> None:
    scenes.end(database, scenes.run(database), Reason.STORAGE, node_failed=True)
    with database.jobs() as session:
        session.execute(update(NodeFailureRow).values(at=db_now() - nodes.FAILURES_SECONDS - 1))
    assert failures(database) == []


def test_a_quarantined_node_gets_no_work_and_keeps_its_jobs(database: Database) -> None:
    running = scenes.run(database)
    with database.jobs() as session:
        assert nodes.quarantine(session, "n1", "it failed")
        assert not nodes.quarantine(session, "n1", "again")
    with database.read_jobs() as session:
        [node] = snapshots.read(session, Timings()).nodes
        assert not node.ready
    assert scenes.place(database, scenes.submit(database), ("n1", (2, 3))) is None
    assert scenes.renew(database, running) == {running.assignment_id: None}


def test_only_jobs_that_a_quarantined_node_failed_get_one_event(
    database: Database,
) -> None:
    failed, sound = scenes.run(database), scenes.submit(database)
    scenes.end(database, failed, Reason.STORAGE, node_failed=True)
    with database.jobs() as session:
        nodes.quarantine(session, "n1", "its disk is full")
        nodes.quarantine(session, "n1", "again")
    with database.read_jobs() as session:
        told = {
            job: [
                event
                for event in events.page(session, job, limit=100)
                if event.kind == "node_quarantined"
            ]
            for job in (failed.job_id, sound)
        }
        (event,) = told[failed.job_id]
        assert event.message == "node n1, where it failed, is quarantined: its disk is full"
        assert (event.actor, event.data) == ("lockstep", {"node": "n1", "why": "its disk is full"})
        assert told[sound] == []


def test_a_quarantine_outlives_a_restart_of_the_agent(database: Database) -> None:
    scenes.add_node(database)
    with database.jobs() as session:
        nodes.quarantine(session, "n1", "it failed")
    scenes.add_node(database)
    with database.read_jobs() as session:
        assert nodes.quarantined(session) == {"n1"}


def test_a_resumed_node_begins_without_failures(database: Database) -> None:
    scenes.end(database, scenes.run(database), Reason.STORAGE, node_failed=True)
    with database.jobs() as session:
        nodes.quarantine(session, "n1", "it failed")
        nodes.set_draining(session, "n1", draining=True)
        assert nodes.resume(session, "n1")
        assert not nodes.resume(session, "n9")
    assert failures(database) == []
    assert scenes.place(database, scenes.submit(database), ("n1", (2, 3))) is not None
