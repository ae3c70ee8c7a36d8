"""Attempts: placed completely or not at all, claimed once, renewed and fenced by their tokens."""

from __future__ import annotations

import pytest
from sqlalchemy import update
from sqlalchemy.exc import IntegrityError

from lockstep.domain.life.lifecycle import AssignmentState, AttemptState, JobState
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.training.memory import MemoryForecast
from lockstep.storage.attempts import attempts, checkpoints, events, nodes
from lockstep.storage.db.clock import now
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import AssignmentRow, AttemptRow
from lockstep.storage.jobs import jobs
from tests.storage import scenes


def test_a_placed_job_holds_its_devices_and_waits_for_its_node(database: Database) -> None:
    scenes.add_node(database)
    job_id = scenes.submit(database)
    placed = scenes.placed_on(database, job_id)
    assert placed.number == 1
    assert scenes.free_devices(database) == [2, 3]
    assert scenes.state_of(database, job_id) is JobState.STARTING
    with database.read_jobs() as session:
        assert attempts.unclaimed(session, "n1") == [placed.assignments[0].assignment_id]
        assert attempts.unclaimed(session, "n2") == []


def test_a_lease_runs_from_the_placement_on(database: Database) -> None:
    scenes.add_node(database)
    placed = scenes.placed_on(database, scenes.submit(database))
    assignment_id = placed.assignments[0].assignment_id
    with database.read_jobs() as session:
        row = session.get_one(AssignmentRow, assignment_id)
        assert 0 < row.lease_expires_at - now(session) <= scenes.LEASE_SECONDS
        assert attempts.expired(session) == []
    scenes.expire(database, assignment_id)
    with database.read_jobs() as session:
        assert [gone.assignment_id for gone in attempts.expired(session)] == [assignment_id]


def test_a_lease_cannot_be_empty(database: Database) -> None:
    scenes.add_node(database)
    scenes.placed_on(database, scenes.submit(database))
    with pytest.raises(IntegrityError), database.jobs() as session:
        session.execute(update(AssignmentRow).values(lease_expires_at=None))


def test_one_taken_device_leaves_the_whole_gang_unplaced(database: Database) -> None:
    scenes.add_node(database, "n1", 2)
    scenes.add_node(database, "n2", 2)
    scenes.place(database, scenes.submit(database, resources={"gpus": 1}), ("n2", (1,)))
    gang = scenes.submit(database, resources={"gpus": 4})
    before = scenes.job_of(database, gang)
    assert scenes.place(database, gang, ("n1", (0, 1)), ("n2", (0, 1))) is None
    after = scenes.job_of(database, gang)
    assert (after.state, after.version, after.attempt_count) == (before.state, before.version, 0)
    assert scenes.kinds(database, gang) == ["submitted"]
    assert scenes.free_devices(database, "n1") == [0, 1]
    with database.read_jobs() as session:
        assert attempts.newest(session, [gang]) == {}


@pytest.mark.parametrize("why", ["draining", "unknown node", "unknown device", "device gone"])
def test_a_node_that_cannot_take_work_gets_none(database: Database, why: str) -> None:
    scenes.add_node(database, devices=2)
    devices = {"unknown node": ("nowhere", (0, 1)), "unknown device": ("n1", (1, 2))}.get(
        why, ("n1", (0, 1))
    )
    if why == "draining":
        with database.jobs() as session:
            assert nodes.set_draining(session, "n1", True)
    if why == "device gone":
        scenes.add_node(database, devices=1)
    job_id = scenes.submit(database)
    assert scenes.place(database, job_id, devices) is None
    assert scenes.state_of(database, job_id) is JobState.QUEUED


def test_a_silent_node_gets_no_work(database: Database) -> None:
    scenes.add_node(database)
    job_id = scenes.submit(database)
    with database.jobs() as session:
        assert attempts.place(session, job_id, (("n1", (0, 1)),), lease_seconds=-1.0) is None


def test_a_job_in_backoff_is_not_placed(database: Database) -> None:
    scenes.add_node(database)
    job_id = scenes.submit(database)
    with database.jobs() as session:
        row = jobs.get(session, job_id)
        assert row is not None
        row.not_before = now(session) + 60
    assert scenes.place(database, job_id) is None


def test_the_database_refuses_a_second_live_attempt(database: Database) -> None:
    claimed = scenes.run(database)
    with pytest.raises(IntegrityError), database.jobs() as session:
        session.add(
            AttemptRow(
                id="0" * 36,
                job_id=claimed.job_id,
                number=2,
                world_size=1,
                node_count=1,
                device_kind="cpu",
                rendezvous_host="127.0.0.1",
                created_at=0.0,
            )
        )


def test_a_claim_carries_everything_that_a_node_needs(database: Database) -> None:
    scenes.add_node(database)
    job_id = scenes.submit(database, timeout_seconds=100)
    claimed = scenes.claimed_on(database, job_id, (1, 3))
    job = scenes.job_of(database, job_id)
    assert (claimed.job_id, claimed.attempt_number, claimed.spec, claimed.plan) == (
        job_id,
        1,
        job.spec,
        job.plan,
    )
    assert (claimed.devices, claimed.device_kind, claimed.ranks_here, claimed.world_size) == (
        [1, 3],
        "cpu",
        2,
        2,
    )
    assert (claimed.node_rank, claimed.node_count, claimed.rendezvous_port) == (0, 1, 29500)
    assert (claimed.published, claimed.timeout_left_seconds) == ([], 100.0)
    assert len(claimed.token) == 32


def test_an_assignment_is_claimed_once_and_by_its_node(database: Database) -> None:
    scenes.add_node(database)
    placed = scenes.placed_on(database, scenes.submit(database))
    assignment_id = placed.assignments[0].assignment_id
    assert scenes.claim(database, assignment_id, "n2") is None
    assert scenes.claim(database, assignment_id) is not None
    assert scenes.claim(database, assignment_id) is None
    assert scenes.claim(database, "no such assignment") is None


def test_other_nodes_claim_after_the_first_has_published_its_port(
    database: Database,
) -> None:
    placed = scenes.placed_gang(database)
    first, second = (part.assignment_id for part in placed.assignments)
    assert scenes.claim(database, second, "n2") is None
    assert scenes.claim(database, first, "n1") is not None
    claimed = scenes.claim(database, second, "n2")
    assert claimed is not None
    assert (claimed.rendezvous_host, claimed.rendezvous_port, claimed.node_rank) == ("n1", 29500, 1)


def test_a_script_starts_the_requested_number_of_ranks(database: Database) -> None:
    scenes.add_node(database)
    script = {"command": ["train.py"], "nproc_per_node": 3}
    job_id = scenes.submit(
        database, kind="script", train=None, script=script, resources={"gpus": 1}
    )
    claimed = scenes.claimed_on(database, job_id, (0,))
    assert (claimed.ranks_here, claimed.world_size, claimed.plan) == (3, 3, None)


def test_data_parallel_starts_one_rank_on_all_its_devices(database: Database) -> None:
    scenes.add_node(database)
    train = {**scenes.document()["train"], "strategy": {"name": "data_parallel"}}
    job_id = scenes.submit(database, train=train, resources={"gpus": 2})
    claimed = scenes.claimed_on(database, job_id, (0, 1))
    assert (claimed.ranks_here, claimed.world_size, claimed.devices) == (1, 1, [0, 1])


def test_a_running_job_has_one_event_for_it(database: Database) -> None:
    claimed = scenes.run(database)
    with database.jobs() as session:
        assert attempts.mark_running(session, claimed.assignment_id, claimed.token)
    assert scenes.kinds(database, claimed.job_id).count("running") == 1
    with database.read_jobs() as session:
        attempt = attempts.newest(session, [claimed.job_id])[claimed.job_id]
    assert (attempt.state, attempt.nodes) == (AttemptState.RUNNING, ["n1"])
    assert scenes.job_of(database, claimed.job_id).started_at is not None


def test_a_settled_plan_is_the_jobs_plan_and_the_next_attempts(database: Database) -> None:
    claimed = scenes.run(database)
    plan = {
        "batch_size": 64,
        "micro_batch_size": 4,
        "accumulation_steps": 8,
        "world_size": 2,
        "parameters": 10,
    }
    for _ in range(2):
        with database.jobs() as session:
            assert attempts.settle_plan(session, claimed.assignment_id, claimed.token, plan)
    assert scenes.job_of(database, claimed.job_id).plan == plan
    assert scenes.kinds(database, claimed.job_id).count("plan") == 1
    scenes.end(database, claimed, Reason.KILLED)
    scenes.release(database, claimed)
    scenes.skip_backoff(database, claimed.job_id)
    assert scenes.start(database, claimed.job_id).plan == plan


def test_a_plan_gets_a_later_memory_forecast(database: Database) -> None:
    claimed = scenes.run(database)
    plan = {
        "batch_size": 64,
        "micro_batch_size": 4,
        "accumulation_steps": 8,
        "world_size": 2,
        "memory": None,
    }
    parts = dict.fromkeys(MemoryForecast.parts(), 2**20)
    for told in (plan, plan | {"memory": parts}, plan | {"memory": parts}):
        with database.jobs() as session:
            assert attempts.settle_plan(session, claimed.assignment_id, claimed.token, told)
    with database.read_jobs() as session:
        said = [
            event.message
            for event in events.page(session, claimed.job_id, limit=100)
            if event.kind == "plan"
        ]
    assert len(said) == 2
    assert said[1].startswith("memory: about 7.0 MiB per rank (")
    stored = scenes.job_of(database, claimed.job_id).plan
    assert stored is not None
    assert stored["memory"] == parts


def test_a_renewal_extends_the_lease_and_updates_the_node(database: Database) -> None:
    claimed = scenes.run(database)
    scenes.expire(database, claimed.assignment_id)
    assert scenes.renew(database, claimed) == {claimed.assignment_id: None}
    with database.read_jobs() as session:
        assert attempts.expired(session) == []
        row = session.get_one(AssignmentRow, claimed.assignment_id)
        assert row.lease_expires_at - now(session) > scenes.LEASE_SECONDS - 5
        assert now(session) - nodes.all_nodes(session)[0].seen_at < 5


def test_a_renewal_omits_lost_assignments(database: Database) -> None:
    claimed = scenes.run(database)
    other = scenes.start(database, scenes.submit(database), (2, 3))
    scenes.end(database, other, Reason.USER_ERROR)
    tokens = {
        claimed.assignment_id: claimed.token,
        other.assignment_id: other.token,
        "unknown": "token",
    }
    with database.jobs() as session:
        assert attempts.renew(session, "n1", tokens, lease_seconds=60) == {
            claimed.assignment_id: None
        }
        assert attempts.renew(session, "n2", tokens, lease_seconds=60) == {}
        assert attempts.renew(session, "n1", {}, lease_seconds=60) == {}


def test_a_stale_token_changes_nothing(database: Database) -> None:
    claimed = scenes.run(database)
    scenes.expire(database, claimed.assignment_id)  # else a loss would be refused in any case
    before = scenes.job_of(database, claimed.job_id)
    assert scenes.renew(database, claimed, token="stale") == {}
    with database.jobs() as session:
        outcome = Outcome.of(Reason.USER_ERROR, "stale")
        assert not attempts.mark_running(session, claimed.assignment_id, "stale")
        assert not attempts.settle_plan(session, claimed.assignment_id, "stale", {"batch_size": 1})
        assert not attempts.end(
            session, claimed.assignment_id, "stale", outcome, timings=scenes.QUICK
        )
        assert not attempts.lose(session, claimed.assignment_id, "stale", timings=scenes.QUICK)
        assert not checkpoints.publish(
            session,
            claimed.assignment_id,
            "stale",
            step=1,
            location="x",
            bytes=1,
            sha256="0",
            final=False,
        )
    after = scenes.job_of(database, claimed.job_id)
    assert (after.state, after.version, after.plan) == (before.state, before.version, before.plan)
    with database.read_jobs() as session:
        assert checkpoints.of_job(session, claimed.job_id) == []


def test_devices_are_free_once_the_node_has_swept_them(database: Database) -> None:
    claimed = scenes.run(database)
    assert not scenes.release(database, claimed)
    scenes.end(database, claimed, Reason.SUCCEEDED)
    assert scenes.free_devices(database) == [2, 3]
    with database.read_jobs() as session:
        [held] = attempts.held(session, "n1")
    assert (held.assignment_id, held.token, held.state) == (
        claimed.assignment_id,
        claimed.token,
        AssignmentState.ENDED,
    )
    assert scenes.release(database, claimed)
    assert not scenes.release(database, claimed)
    assert scenes.free_devices(database) == [0, 1, 2, 3]
    with database.read_jobs() as session:
        assert attempts.held(session, "n1") == []


def test_a_job_beyond_its_timeout_is_overdue(database: Database) -> None:
    late = scenes.run(database, timeout_seconds=10)
    with database.jobs() as session:
        assert attempts.overdue(session) == []
        attempt = attempts.newest(session, [late.job_id])[late.job_id]
        attempt.running_at = now(session) - 11
    with database.read_jobs() as session:
        assert attempts.overdue(session) == [late.job_id]


def test_a_job_without_a_timeout_is_never_overdue(database: Database) -> None:
    claimed = scenes.run(database)
    with database.jobs() as session:
        attempts.newest(session, [claimed.job_id])[claimed.job_id].running_at = 0.0
    with database.read_jobs() as session:
        assert attempts.overdue(session) == []


def test_node_rank_0_publishes_its_address_and_the_number_of_machines(
    database: Database,
) -> None:
    scenes.add_node(database, "n1", 1)
    with database.jobs() as session:
        found = [nodes.DeviceInfo(0, "cpu", "cpu")]
        nodes.register(session, "n2", found, version="0.1.0", boot_id="another machine")
    placed = scenes.placed_on(database, scenes.submit(database), ("n1", (0,)), ("n2", (0,)))
    first, second = (part.assignment_id for part in placed.assignments)
    told = {"lease_seconds": 60.0, "rendezvous_port": 12_345}
    with database.jobs() as session:
        assert attempts.claim(session, first, "n1", rendezvous_host="10.0.0.1", **told)
        claimed = attempts.claim(session, second, "n2", rendezvous_host="10.0.0.2", **told)
    assert claimed is not None
    assert (claimed.rendezvous_host, claimed.rendezvous_port, claimed.host_count) == (
        "10.0.0.1",
        12_345,
        2,
    )
