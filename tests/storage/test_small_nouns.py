"""Nodes, events, checkpoints, tokens, the scheduler's lease and the clock."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import select, text, update

from lockstep.domain.life.outcomes import Reason
from lockstep.domain.rights import UserState
from lockstep.storage.attempts import attempts, checkpoints, events, nodes
from lockstep.storage.control import scheduler_lease
from lockstep.storage.db.clock import db_now, now
from lockstep.storage.db.database import Database
from lockstep.storage.db.people_tables import TokenRow, UserRow
from lockstep.storage.db.tables import EventRow, JobRow, SchedulerLeaseRow
from lockstep.storage.people import tokens
from tests.storage import scenes


def test_the_clock_counts_seconds_since_the_epoch_also_in_a_transaction(
    database: Database,
) -> None:
    with database.jobs() as session:
        first = now(session)
        time.sleep(0.02)  # detection of this is the subject of the test
        assert now(session) > first
    assert first == pytest.approx(time.time(), abs=5)


def test_a_registered_node_reads_back_with_its_devices_and_their_jobs(database: Database) -> None:
    with database.jobs() as session:
        gpus = [nodes.DeviceInfo(index, "cuda", "NVIDIA H200", 150 * 10**9) for index in (0, 1)]
        nodes.register(session, "n1", gpus, version="0.1.0", boot_id="boot")
    job_id = scenes.submit(database, resources={"gpus": 1})
    scenes.place(database, job_id, ("n1", (1,)))
    with database.read_jobs() as session:
        [node] = nodes.all_nodes(session)
        attempt = attempts.newest(session, [job_id])[job_id]
    assert (node.name, node.version, node.boot_id, node.draining) == ("n1", "0.1.0", "boot", False)
    assert [(d.index, d.kind, d.type, d.memory_bytes, d.job_id) for d in node.devices] == [
        (0, "cuda", "NVIDIA H200", 150 * 10**9, None),
        (1, "cuda", "NVIDIA H200", 150 * 10**9, job_id),
    ]
    assert attempt.device_kind == "cuda"


def test_a_registration_replaces_what_a_node_offers(database: Database) -> None:
    def offered() -> list[str]:
        with database.read_jobs() as session:
            [node] = nodes.all_nodes(session)
        return node.offers

    for names in ([], ["data:x", "rack:a"], ["rack:a"]):
        with database.jobs() as session:
            nodes.register(session, "n1", [], version="0.1.0", boot_id="b", offers=names)
        assert offered() == names


def test_rows_of_programs_that_know_no_offers_have_none(database: Database) -> None:
    columns = "name, version, boot_id, draining, registered_at, seen_at"
    with database.jobs() as session:
        session.execute(text(f"INSERT INTO nodes ({columns}) VALUES ('n', '0', 'b', false, 1, 1)"))
    with database.read_jobs() as session:
        assert [node.offers for node in nodes.all_nodes(session)] == [[]]
        assert nodes.lacking(session, ["data:x"]) == "data:x"


def test_a_job_has_a_row_of_what_it_needs(database: Database) -> None:
    needs = {"gpus": 1, "needs": ["rack:a", "data:x"]}
    first, second = scenes.submit(database), scenes.submit(database, resources=needs)
    with database.read_jobs() as session:
        found = dict(session.execute(select(JobRow.id, JobRow.needs)).all())
    assert found == {first: [], second: ["data:x", "rack:a"]}


def test_a_new_registration_keeps_drain_and_held_devices(database: Database) -> None:
    claimed = scenes.run(database)
    with database.jobs() as session:
        nodes.set_draining(session, "n1", True)
    scenes.add_node(database)
    with database.read_jobs() as session:
        [node] = nodes.all_nodes(session)
    assert node.draining
    assert [device.job_id for device in node.devices] == [
        claimed.job_id,
        claimed.job_id,
        None,
        None,
    ]


def test_a_missing_device_is_not_free_but_counts_for_the_largest(
    database: Database,
) -> None:
    with database.read_jobs() as session:
        assert nodes.largest_ever(session) == 0
    scenes.add_node(database, "n1", 4)
    scenes.add_node(database, "n2", 2)
    scenes.add_node(database, "n1", 3)
    assert scenes.free_devices(database) == [0, 1, 2]
    with database.read_jobs() as session:
        assert nodes.largest_ever(session) == 6


def test_an_unknown_node_cannot_be_touched_or_drained(database: Database) -> None:
    with database.jobs() as session:
        assert not nodes.touch(session, "nobody")
        assert not nodes.set_draining(session, "nobody", True)


def test_events_are_paged_in_either_order_beyond_the_last_one_seen(database: Database) -> None:
    job_id = scenes.submit(database)
    other = scenes.submit(database)
    with database.jobs() as session:
        for index in range(5):
            events.add(
                session,
                job_id=job_id,
                attempt=1,
                kind="warning",
                message=f"{index}",
                actor="n1",
                data={"i": index},
            )
            events.add(
                session, job_id=other, attempt=None, kind="warning", message="other", actor="n1"
            )
    story = ["submitted by ada", "0", "1", "2", "3", "4"]
    told: dict[events.Order, list[str]] = {"oldest": story, "newest": story[::-1]}
    for order, expected in told.items():
        seen: list[str] = []
        last = None
        with database.read_jobs() as session:
            while page := events.page(session, job_id, order=order, beyond=last, limit=2):
                ids = events.page_ids(session, job_id, order=order, beyond=last, limit=2)
                assert ids == [event.id for event in page]
                seen += [event.message for event in page]
                last = ids[-1]
        assert seen == expected


def test_a_new_event_is_in_forward_pages_and_not_in_backward_ones(
    database: Database,
) -> None:
    job_id = scenes.submit(database)
    with database.jobs() as session:
        events.add(session, job_id=job_id, attempt=1, kind="warning", message="first", actor="n1")
    with database.read_jobs() as session:
        [newest] = events.page(session, job_id, order="newest", limit=1)
    with database.jobs() as session:
        events.add(
            session, job_id=job_id, attempt=1, kind="warning", message="meanwhile", actor="n1"
        )
    with database.read_jobs() as session:
        ahead = events.page(session, job_id, beyond=newest.id, limit=9)
        back = events.page(session, job_id, order="newest", beyond=newest.id, limit=9)
    assert [[event.message for event in page] for page in (ahead, back)] == [
        ["meanwhile"],
        ["submitted by ada"],
    ]


def test_an_event_may_quote_anything(database: Database) -> None:
    job_id = scenes.submit(database)
    with database.jobs() as session:
        events.add(
            session,
            job_id=job_id,
            attempt=1,
            kind="warning",
            message="a\0b é",
            actor="n1",
            data={"x": "\0"},
        )
    with database.read_jobs() as session:
        event = session.scalars(select(EventRow).where(EventRow.kind == "warning")).one()
    assert (event.message, event.data) == ("a␀b é", {"x": "\0"})


def _publish(
    database: Database, claimed: attempts.Claim, step: int, *, final: bool = False
) -> bool:
    with database.jobs() as session:
        return checkpoints.publish(
            session,
            claimed.assignment_id,
            claimed.token,
            step=step,
            location=f"jobs/{claimed.job_id}/{claimed.attempt_number}/step-{step:08d}",
            bytes=10,
            sha256="0" * 64,
            final=final,
        )


def test_a_new_attempt_resumes_from_the_newest_checkpoint(database: Database) -> None:
    claimed = scenes.run(database)
    assert _publish(database, claimed, 10)
    assert _publish(database, claimed, 20)
    scenes.end(database, claimed, Reason.KILLED)
    scenes.release(database, claimed)
    again = scenes.start(database, claimed.job_id)
    found = [(each.step, each.location) for each in again.published]
    assert found == [(step, f"jobs/{claimed.job_id}/1/step-000000{step}") for step in (20, 10)]
    assert not _publish(database, claimed, 30)


def test_a_checkpoint_published_again_is_one_checkpoint(database: Database) -> None:
    claimed = scenes.run(database)
    assert _publish(database, claimed, 10)
    assert _publish(database, claimed, 10)
    with database.read_jobs() as session:
        assert [row.step for row in checkpoints.of_job(session, claimed.job_id)] == [10]
    assert scenes.kinds(database, claimed.job_id).count("checkpoint") == 1


def test_pruning_keeps_the_newest_and_names_the_rest(database: Database) -> None:
    claimed = scenes.run(database)
    for step in (10, 20, 30):
        _publish(database, claimed, step, final=step == 30)
    with database.jobs() as session:
        dropped = checkpoints.prune(session, claimed.job_id, 2)
    assert dropped == [f"jobs/{claimed.job_id}/1/step-00000010"]
    with database.jobs() as session:
        assert [(row.step, row.final) for row in checkpoints.of_job(session, claimed.job_id)] == [
            (30, True),
            (20, False),
        ]
        assert checkpoints.prune(session, claimed.job_id, 2) == []


def test_a_token_is_valid_until_revoked_and_not_stored(database: Database) -> None:
    for _ in range(2):
        with database.jobs() as session:
            tokens.ensure(session, "secret", name="local", actor="ada")
    with database.jobs() as session:
        row = tokens.find(session, "secret")
        assert row is not None
        assert (row.name, row.actor) == ("local", "ada")
        assert "secret" not in row.sha256
        assert tokens.find(session, "Secret") is None
        assert tokens.find(session, "\udcff") is None
        assert tokens.why_refused(session, row) is None
        for end in ({"revoked_at": 1.0}, {"revoked_at": None, "expires_at": 2.0}):
            session.execute(update(TokenRow).values(**end))
            session.refresh(row)
            assert tokens.why_refused(session, row) in {("was revoked", 1.0), ("has expired", 2.0)}
        session.execute(update(TokenRow).values(expires_at=db_now() + 60))
        session.execute(update(UserRow).values(state=UserState.OFF))
        session.refresh(row)
        assert tokens.why_refused(session, row) == ("belongs to a person who is not active", None)


def test_a_lease_is_held_until_released_or_expired(database: Database) -> None:
    with database.jobs() as session:
        assert scheduler_lease.take(session, "a", ttl_seconds=60)
        assert not scheduler_lease.take(session, "b", ttl_seconds=60)
        assert not scheduler_lease.give_back(session, "b")
        assert not scheduler_lease.take(session, "b", ttl_seconds=60)
        session.execute(update(SchedulerLeaseRow).values(expires_at=db_now() - 1))
        assert scheduler_lease.take(session, "b", ttl_seconds=60)


def test_a_notification_during_a_cycle_requests_another(database: Database) -> None:
    with database.jobs() as session:
        scheduler_lease.take(session, "a", ttl_seconds=60)
        scheduler_lease.mark_dirty(session)
        assert scheduler_lease.give_back(session, "a")
        scheduler_lease.take(session, "a", ttl_seconds=60)
        assert not scheduler_lease.give_back(session, "a")


def test_the_gap_is_measured_from_the_end_of_the_last_cycle(database: Database) -> None:
    with database.jobs() as session:
        assert scheduler_lease.gap_seconds(session) == 0.0
        scheduler_lease.take(session, "a", ttl_seconds=60)
        scheduler_lease.give_back(session, "a")
        assert scheduler_lease.gap_seconds(session) < 5
        session.execute(update(SchedulerLeaseRow).values(finished_at=db_now() - 100))
        assert scheduler_lease.gap_seconds(session) == pytest.approx(100, abs=5)
