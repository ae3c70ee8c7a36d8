"""Gangs over several nodes: the outcome of the gang, and the state of the other parts.

``scenes.renew`` returns ``{id: None}`` for a part that continues, ``{}`` for one that has ended.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import update

from lockstep.domain.life.lifecycle import AssignmentState, Intent, JobState
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.life.timings import Timings
from lockstep.storage.attempts import attempts, gangs
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import AssignmentRow, AttemptRow
from lockstep.storage.jobs import stopping
from tests.storage import scenes


def tell(database: Database, claimed: attempts.Claim, reason: Reason, **details: object) -> bool:
    with database.jobs() as session:
        outcome = Outcome.of(reason, f"it will end: {reason}", **details)
        return gangs.report(session, claimed.assignment_id, claimed.token, outcome)


def settle(database: Database) -> list[str | None]:
    with database.jobs() as session:
        found = gangs.unsettled(session, Timings())
        return [gangs.settle(session, one, timings=Timings()) for one in found]


def to_end(database: Database) -> list[str]:
    """Return the nodes that must end their ranks."""
    with database.read_jobs() as session:
        return [name for name in ("n1", "n2") if gangs.to_end(session, name)]


def set_cause_ago(database: Database, seconds: float) -> None:
    """Set the time of every known cause to this number of seconds ago."""
    with database.jobs() as session:
        known = update(AttemptRow).where(AttemptRow.cause_at.is_not(None))
        session.execute(known.values(cause_at=db_now() - seconds))


def set_ended_ago(database: Database, claimed: attempts.Claim, seconds: float) -> None:
    """Set the end of a part to this number of seconds ago."""
    with database.jobs() as session:
        ended = update(AssignmentRow).where(AssignmentRow.id == claimed.assignment_id)
        session.execute(ended.values(ended_at=db_now() - seconds))


def set_renewed_ago(database: Database, claimed: attempts.Claim, seconds: float) -> None:
    """Set the last renewal of a part to this number of seconds ago."""
    with database.jobs() as session:
        lease = update(AssignmentRow).where(AssignmentRow.id == claimed.assignment_id)
        session.execute(lease.values(lease_expires_at=db_now() - seconds + Timings().lease_seconds))


def states(database: Database, names: tuple[str, ...] = ("n1", "n2")) -> dict[str, AssignmentState]:
    with database.read_jobs() as session:
        return {name: held.state for name in names for held in attempts.held(session, name)}


def test_a_node_that_lost_its_peers_waits_for_a_cause(database: Database) -> None:
    first, second = scenes.gang(database)
    assert scenes.end(database, first, Reason.NETWORK, node="n1")
    assert scenes.state_of(database, first.job_id) is JobState.STARTING
    assert scenes.release(database, first)
    assert scenes.renew(database, second) == {second.assignment_id: None}
    assert scenes.end(database, second, Reason.KILLED, node="n2", rank=3)
    job = scenes.job_of(database, first.job_id)
    assert (job.state, job.reason, job.outcome["node"], job.outcome["rank"]) == (
        JobState.QUEUED,
        "killed",
        "n2",
        3,
    )


def test_a_lost_node_is_the_cause_for_the_other_nodes(database: Database) -> None:
    first, second = scenes.gang(database)
    assert scenes.end(database, first, Reason.NETWORK, node="n1")
    set_ended_ago(database, first, gangs.CAUSE_SECONDS + 1)
    scenes.expire(database, second.assignment_id)
    assert settle(database) == [None]
    with database.jobs() as session:
        assert attempts.lose(session, second.assignment_id, second.token, timings=scenes.QUICK)
    job = scenes.job_of(database, first.job_id)
    assert (job.reason, job.outcome["node"]) == ("lost", "n2")


def test_the_other_nodes_of_a_lost_one_send_what_their_ranks_wrote(database: Database) -> None:
    first, second = scenes.gang(database)
    scenes.expire(database, second.assignment_id)
    with database.jobs() as session:
        assert attempts.lose(session, second.assignment_id, second.token, timings=scenes.QUICK)
    assert to_end(database) == ["n1"]
    assert scenes.renew(database, first) == {first.assignment_id: None}
    assert scenes.end(database, first, Reason.NETWORK, node="n1")
    job = scenes.job_of(database, first.job_id)
    assert (job.state, job.outcome["node"]) == (JobState.QUEUED, "n2")
    with database.read_jobs() as session:
        lease = session.get_one(AssignmentRow, second.assignment_id).lease_expires_at
    quick = scenes.QUICK
    assert job.not_before >= lease - quick.lease_seconds + quick.replace_after_seconds


def test_a_cause_is_not_forgotten_when_its_node_or_another_is_lost(database: Database) -> None:
    for lost in (0, 1):
        parts = scenes.gang(database)
        assert tell(database, parts[0], Reason.USER_ERROR, rank=0)
        scenes.expire(database, parts[lost].assignment_id)
        with database.jobs() as session:
            gone = parts[lost]
            assert attempts.lose(session, gone.assignment_id, gone.token, timings=scenes.QUICK)
        assert scenes.end(database, parts[1 - lost], Reason.NETWORK)
        job = scenes.job_of(database, parts[0].job_id)
        assert (job.state, job.reason) == (JobState.FAILED, "user_error")
        assert scenes.kinds(database, job.id).count("warning") == 1
        for part in parts:
            assert scenes.release(database, part)


def test_a_node_that_lost_healthy_peers_ends_the_gang_as_network(database: Database) -> None:
    first, second = scenes.gang(database)
    assert scenes.end(database, first, Reason.NETWORK, node="n1")
    assert settle(database) == []
    set_ended_ago(database, first, gangs.CAUSE_SECONDS + 1)
    set_renewed_ago(database, second, gangs.CAUSE_SECONDS)  # It may have died since.
    assert settle(database) == [None]
    set_renewed_ago(database, second, 0.0)
    assert settle(database) == ["the nodes of an attempt lost their connections to each other"]
    assert to_end(database) == ["n2"]
    assert scenes.end(database, second, Reason.NETWORK, node="n2")
    job = scenes.job_of(database, first.job_id)
    assert (job.reason, job.outcome["node"]) == ("network", "n1")


def test_a_node_that_is_still_sending_is_waited_for(database: Database) -> None:
    first, second = scenes.gang(database)
    assert tell(database, first, Reason.NETWORK)
    assert scenes.end(database, second, Reason.NETWORK, node="n2")
    set_ended_ago(database, second, gangs.CAUSE_SECONDS + 1)
    assert scenes.renew(database, first) == {first.assignment_id: None}
    assert settle(database) == [None]


@pytest.mark.parametrize("last", [0, 1])
def test_a_reported_cause_ends_ranks_and_the_last_upload_ends_the_attempt(
    database: Database, last: int
) -> None:
    parts = scenes.gang(database)
    assert tell(database, parts[0], Reason.USER_ERROR, rank=0)
    assert to_end(database) == ["n1", "n2"]
    # A node whose launcher found another cause at the same moment.
    assert tell(database, parts[1], Reason.KILLED, rank=3)
    reasons = (Reason.USER_ERROR, Reason.KILLED)
    assert scenes.end(database, parts[1 - last], reasons[1 - last])
    assert scenes.renew(database, parts[last]) == {parts[last].assignment_id: None}
    assert scenes.state_of(database, parts[0].job_id) is JobState.STARTING
    assert scenes.end(database, parts[last], reasons[last])
    job = scenes.job_of(database, parts[0].job_id)
    assert (job.state, job.reason, job.outcome["rank"]) == (JobState.FAILED, "user_error", 0)


def test_a_node_that_does_not_end_its_ranks_is_given_up_after_a_lease(database: Database) -> None:
    first, second = scenes.gang(database)
    assert tell(database, first, Reason.USER_ERROR, rank=0)
    assert settle(database) == []
    set_cause_ago(database, Timings().lease_seconds + 1)
    (decision,) = filter(None, settle(database))
    assert decision.startswith("node n2 did not end its ranks in time")
    assert scenes.kinds(database, first.job_id).count("warning") == 1
    assert scenes.renew(database, second) == {}
    assert states(database) == {"n1": AssignmentState.CLAIMED, "n2": AssignmentState.ENDED}
    assert scenes.state_of(database, first.job_id) is JobState.STARTING
    assert scenes.end(database, first, Reason.USER_ERROR, rank=0)
    assert scenes.state_of(database, first.job_id) is JobState.FAILED


def test_a_node_that_sends_for_longer_than_a_lease_is_waited_for(database: Database) -> None:
    first, second = scenes.gang(database)
    assert tell(database, first, Reason.USER_ERROR, rank=0)
    assert tell(database, second, Reason.NETWORK)
    set_cause_ago(database, Timings().lease_seconds + 1)
    assert not any(settle(database))
    assert scenes.renew(database, second) == {second.assignment_id: None}


def test_a_report_that_is_no_cause_stops_no_node(database: Database) -> None:
    first, second = scenes.gang(database)
    for reason in (Reason.SUCCEEDED, Reason.SHUTDOWN, Reason.NETWORK):
        assert tell(database, first, reason)
        assert to_end(database) == []
        assert scenes.renew(database, second) == {second.assignment_id: None}


def test_a_cause_frees_an_unclaimed_part(database: Database) -> None:
    placed = scenes.placed_gang(database)
    first = scenes.claim(database, placed.assignments[0].assignment_id)
    assert first is not None
    assert tell(database, first, Reason.LAUNCH_FAILED)
    assert scenes.free_devices(database, "n2") == [0]
    assert scenes.claim(database, placed.assignments[1].assignment_id, "n2") is None


def test_a_stop_does_not_wait_for_an_unclaimed_part(database: Database) -> None:
    placed = scenes.placed_gang(database)
    first = scenes.claim(database, placed.assignments[0].assignment_id)
    assert first is not None
    assert scenes.end(database, first, Reason.CANCELLED)
    assert scenes.state_of(database, first.job_id) is JobState.CANCELLED
    assert scenes.free_devices(database, "n2") == [0]


def test_a_report_of_a_part_that_has_ended_is_ignored(database: Database) -> None:
    first, _second = scenes.gang(database)
    assert scenes.end(database, first, Reason.NETWORK)
    assert not tell(database, first, Reason.KILLED)
    assert to_end(database) == []


def test_a_report_with_a_stale_token_is_ignored(database: Database) -> None:
    first, second = scenes.gang(database)
    assert not tell(database, replace(first, token="stale"), Reason.KILLED)
    assert scenes.renew(database, second) == {second.assignment_id: None}


def test_a_stop_that_the_other_nodes_were_not_asked_for_is_a_cause(database: Database) -> None:
    first, second = scenes.gang(database)
    assert scenes.end(database, second, Reason.SHUTDOWN)
    assert to_end(database) == ["n1"]
    assert scenes.end(database, first, Reason.NETWORK)
    job = scenes.job_of(database, first.job_id)
    assert (job.state, job.reason, job.charged_attempts) == (JobState.QUEUED, "shutdown", 0)


def test_a_stop_ends_the_gang_once_every_node_has_stopped(database: Database) -> None:
    first, second = scenes.gang(database)
    with database.jobs() as session:
        assert stopping.ask(session, first.job_id, Intent.SHUTDOWN, actor="n2", message="stop")
    assert scenes.end(database, second, Reason.SHUTDOWN)
    # Node rank 0 may still be storing the checkpoint of the stop.
    assert to_end(database) == []
    assert scenes.renew(database, first) == {first.assignment_id: Intent.SHUTDOWN}
    assert scenes.end(database, first, Reason.SHUTDOWN)
    job = scenes.job_of(database, first.job_id)
    assert (job.state, job.reason) == (JobState.QUEUED, "shutdown")
