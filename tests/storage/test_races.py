"""Real races: threads with a session each.

The loser gets an error, and no row is written twice.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import update

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.lifecycle import TERMINAL, JobState
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.rights import EVERY
from lockstep.domain.spec.job import JobSpec
from lockstep.storage.attempts import attempts, lineage
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.control import scheduler_lease
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import JobRow
from lockstep.storage.jobs import jobs, listing, removal, stopping
from tests.storage import scenes

ENDS = {"succeeded", "failed", "cancelled"}


def test_twenty_submits_with_one_key_make_one_job(database: Database) -> None:
    ids = scenes.at_once(
        *[lambda: scenes.submit(database, idempotency=("key", "same")) for _ in range(20)]
    )
    assert len(set(ids)) == 1
    with database.read_jobs() as session:
        rows, _next = listing.page(session, among=EVERY, limit=100)
    assert [row.id for row in rows] == [ids[0]]
    assert scenes.kinds(database, ids[0]) == ["submitted"]


def test_a_job_is_placed_by_one_of_several_schedulers(database: Database) -> None:
    scenes.add_node(database, devices=8)
    job_id = scenes.submit(database)
    placed = scenes.at_once(
        *[
            lambda low=low: scenes.place(database, job_id, ("n1", (low, low + 1)))
            for low in (0, 2, 4, 6)
        ]
    )
    assert len([one for one in placed if one is not None]) == 1
    assert len(scenes.free_devices(database)) == 6
    assert scenes.kinds(database, job_id) == ["submitted", "placed"]


def test_devices_go_to_one_of_several_jobs(database: Database) -> None:
    scenes.add_node(database, devices=2)
    ids = [scenes.submit(database) for _ in range(4)]
    placed = scenes.at_once(
        *[lambda job_id=job_id: scenes.place(database, job_id) for job_id in ids]
    )
    assert len([one for one in placed if one is not None]) == 1
    states = sorted(scenes.state_of(database, job_id) for job_id in ids)
    assert states == [JobState.QUEUED, JobState.QUEUED, JobState.QUEUED, JobState.STARTING]


def test_of_several_deliveries_one_claims(database: Database) -> None:
    scenes.add_node(database)
    placed = scenes.placed_on(database, scenes.submit(database))
    assignment_id = placed.assignments[0].assignment_id
    claims = scenes.at_once(*[lambda: scenes.claim(database, assignment_id) for _ in range(4)])
    assert len([one for one in claims if one is not None]) == 1


@pytest.mark.parametrize("reason", [Reason.SUCCEEDED, Reason.KILLED, Reason.USER_ERROR])
def test_a_cancel_that_races_the_end_leaves_one_terminal_event(
    database: Database, reason: Reason
) -> None:
    scenes.add_node(database)
    for _ in range(5):
        claimed = scenes.start(database, scenes.submit(database))
        scenes.at_once(
            lambda c=claimed: scenes.end(database, c, reason),
            lambda c=claimed: _unless_refused(lambda: _cancel(database, c)),
        )
        scenes.release(database, claimed)
        told = [kind for kind in scenes.kinds(database, claimed.job_id) if kind in ENDS]
        state = scenes.state_of(database, claimed.job_id)
        assert state in TERMINAL  # in either order, a cancel is not lost in a requeue
        assert told == [state.value]


def test_a_cancel_that_races_the_claim_is_never_forgotten(database: Database) -> None:
    scenes.add_node(database)
    for _ in range(5):
        job_id = scenes.submit(database)
        placed = scenes.placed_on(database, job_id)
        assignment_id = placed.assignments[0].assignment_id

        def cancel(job_id: str = job_id) -> None:
            with database.jobs() as session:
                stopping.cancel(session, job_id, "ada")

        claimed, _none = scenes.at_once(lambda a=assignment_id: scenes.claim(database, a), cancel)
        if claimed is None:
            assert scenes.state_of(database, job_id) is JobState.CANCELLED
        else:
            assert scenes.renew(database, claimed) == {assignment_id: "cancel"}
            scenes.end(database, claimed, Reason.CANCELLED)
            scenes.release(database, claimed)
        assert scenes.free_devices(database) == [0, 1, 2, 3]


def test_a_renewal_that_races_a_loss_is_answered_truly(database: Database) -> None:
    scenes.add_node(database)
    for _ in range(5):
        claimed = scenes.start(database, scenes.submit(database))
        scenes.expire(database, claimed.assignment_id)

        def lose(claimed: Claim = claimed) -> bool:
            with database.jobs() as session:
                return attempts.lose(
                    session, claimed.assignment_id, claimed.token, timings=scenes.QUICK
                )

        lost, renewed = scenes.at_once(lose, lambda c=claimed: bool(scenes.renew(database, c)))
        assert lost is not renewed
        assert (scenes.state_of(database, claimed.job_id) is JobState.QUEUED) == lost
        if renewed:
            scenes.end(database, claimed, Reason.USER_ERROR)
        scenes.release(database, claimed)


def test_two_nodes_of_a_gang_that_end_together_end_it_once(database: Database) -> None:
    scenes.add_node(database, "n1", 1)
    scenes.add_node(database, "n2", 1)
    for _ in range(5):
        placed = scenes.placed_on(database, scenes.submit(database), ("n1", (0,)), ("n2", (0,)))
        claims = [
            scenes.claim(database, part.assignment_id, part.node_name)
            for part in placed.assignments
        ]
        scenes.at_once(*[lambda c=c: _end(database, c, Reason.SUCCEEDED) for c in claims])
        assert scenes.kinds(database, placed.job_id)[-1] == "succeeded"
        assert scenes.kinds(database, placed.job_id).count("succeeded") == 1
        for claimed in claims:
            assert claimed is not None
            assert scenes.release(database, claimed)


def _end(database: Database, claimed: Claim, reason: Reason) -> bool:
    with database.jobs() as session:
        outcome = Outcome.of(reason, "it ended")
        return attempts.end(
            session, claimed.assignment_id, claimed.token, outcome, timings=scenes.QUICK
        )


def test_one_of_several_schedulers_takes_the_lease(database: Database) -> None:
    def take(owner: str) -> bool:
        with database.jobs() as session:
            return scheduler_lease.take(session, owner, ttl_seconds=60) is not None

    taken = scenes.at_once(*[lambda owner=owner: take(owner) for owner in "abcd"])
    assert sum(taken) == 1


@pytest.mark.parametrize("between", [False, True])
def test_a_deletion_and_a_job_that_begins_from_its_job_exclude_each_other(
    database: Database, between: bool
) -> None:
    script = {"kind": "script", "script": {"command": ["a"]}, "train": None}
    for _ in range(5):
        first = last = scenes.submit(database, **script)
        _end_all(database)
        if between:
            last = scenes.submit(database, **script, continues=first)
            _end_all(database)

        def submit(last: str = last) -> bool:
            body = scenes.document(**script, continues=last)
            spec = JobSpec.model_validate(body)
            with database.jobs() as session:
                jobs.create(session, document=body, spec=spec, plan=None, actor="ada")
                lineage.hold(session, spec)
            return True

        def mark(first: str = first) -> bool:
            with database.jobs() as session:
                return removal.mark(session, first, among=EVERY)

        done = scenes.at_once(lambda: _unless_refused(submit), lambda: _unless_refused(mark))
        assert sorted(done) == [False, True]


def _end_all(database: Database) -> None:
    with database.jobs() as session:
        session.execute(update(JobRow).values(state=JobState.CANCELLED))


def _cancel(database: Database, claimed: Claim) -> bool:
    with database.jobs() as session:
        stopping.cancel(session, claimed.job_id, "ada")
    return True


def _unless_refused(action: Callable[[], bool]) -> bool:
    try:
        return action()
    except LockstepError as refusal:
        if refusal.code is not ErrorCode.CONFLICT:
            raise
        return False
