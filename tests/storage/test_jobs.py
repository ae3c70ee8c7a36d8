"""Jobs: submitted once, found by id or name, listed without gaps, with guarded transitions."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.lifecycle import TERMINAL, TRANSITIONS, Intent, JobState
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.listing.columns import NEWEST, OLDEST, Sort
from lockstep.domain.rights import EVERY
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.training.plan import plan_of
from lockstep.storage.attempts import events, transitions
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import JobRow
from lockstep.storage.jobs import jobs, listing, marks, stopping
from lockstep.storage.jobs.waiting import Waiting, set_waiting
from tests.storage import scenes


def test_a_submitted_job_is_kept_as_it_was_sent(database: Database) -> None:
    body = scenes.document(labels={"team": "vision"}, env={"GREETING": "é\u2028"})
    body["train"]["task_args"] = {}
    spec = JobSpec.model_validate(body)
    with database.jobs() as session:
        job, new = jobs.create(
            session, document=body, spec=spec, plan=plan_of(spec), actor="ada", idempotency=None
        )
    read = scenes.job_of(database, job.id)
    assert new
    assert read.document == body
    assert list(read.document) == list(body)
    assert JobSpec.model_validate(read.spec) == spec
    assert read.plan == plan_of(spec).model_dump(mode="json")  # type: ignore[union-attr]
    assert (read.state, read.version) == (JobState.QUEUED, 1)
    assert marks.labels_of(read) == {"team": "vision"}
    assert scenes.kinds(database, job.id) == ["submitted"]


def test_a_repeated_submit_returns_the_first_job(database: Database) -> None:
    first = scenes.submit(database, idempotency=("key", "fingerprint"))
    assert scenes.submit(database, idempotency=("key", "fingerprint")) == first
    assert scenes.submit(database, idempotency=("other", "fingerprint")) != first
    assert scenes.kinds(database, first) == ["submitted"]


def test_a_key_reused_for_another_body_is_refused_and_writes_nothing(database: Database) -> None:
    first = scenes.submit(database, idempotency=("key", "one"))
    with pytest.raises(LockstepError) as refusal:
        scenes.submit(database, idempotency=("key", "two"))
    assert refusal.value.code is ErrorCode.CONFLICT
    with database.read_jobs() as session:
        rows, _next = listing.page(session, among=EVERY, limit=10)
    assert [row.id for row in rows] == [first]


def test_a_job_is_found_by_id_end_of_id_name_and_last(database: Database) -> None:
    first = scenes.submit(database, name="first")
    second = scenes.submit(database, name="second")
    third = scenes.submit(database, name="second")
    with database.read_jobs() as session:
        assert jobs.find(session, first, among=EVERY).id == first
        assert jobs.find(session, first[-12:], among=EVERY).id == first
        assert jobs.find(session, "first", among=EVERY).id == first
        assert jobs.find(session, "second", among=EVERY).id == third
        assert jobs.find(session, "last", among=EVERY).id == third
        assert jobs.find(session, second[-12:], among=EVERY).id == second


@pytest.mark.parametrize("reference", ["nothing", "ffff-ffff", "", "abc", "first\0", "%", "____"])
def test_an_unknown_reference_is_not_found(database: Database, reference: str) -> None:
    scenes.submit(database, name="first")
    with database.read_jobs() as session, pytest.raises(LockstepError) as refusal:
        jobs.find(session, reference, among=EVERY)
    assert refusal.value.code is ErrorCode.NOT_FOUND


def test_a_part_of_several_ids_is_refused_with_the_ids(database: Database) -> None:
    first, second = scenes.submit(database), scenes.submit(database)
    with database.read_jobs() as session, pytest.raises(LockstepError) as refusal:
        jobs.find(session, first[:4], among=EVERY)
    assert refusal.value.code is ErrorCode.INVALID
    assert first in refusal.value.message
    assert second in refusal.value.message


@pytest.mark.parametrize("order", [NEWEST, OLDEST])
def test_pages_neither_skip_nor_repeat_while_jobs_are_submitted(
    database: Database, order: Sort
) -> None:
    before = [scenes.submit(database) for _ in range(7)]
    seen: list[str] = []
    cursor = None
    while True:
        with database.read_jobs() as session:
            rows, cursor = listing.page(
                session, listing.JobQuery(cursor=cursor, sort=order), among=EVERY, limit=3
            )
        seen += [row.id for row in rows]
        if cursor is None or len(seen) > 50:
            break
        if len(before) < 9:
            before.append(scenes.submit(database))
    old = before[:7] if order == NEWEST else before
    assert [job for job in seen if job in old] == (old[::-1] if order == NEWEST else old)
    assert len(seen) == len(set(seen))


def test_a_page_filters_by_state_name_project_and_label(database: Database) -> None:
    scenes.add_node(database)
    plain = scenes.submit(database)
    other = scenes.submit(database, name="other", project="vision", labels={"team": "a", "x": "1"})
    with database.jobs() as session:
        stopping.cancel(session, plain, "ada")

    def ids(**wanted: object) -> list[str]:
        with database.read_jobs() as session:
            return [
                row.id
                for row in listing.page(session, listing.JobQuery(**wanted), among=EVERY, limit=10)[
                    0
                ]
            ]  # type: ignore[arg-type]

    assert ids(states=(JobState.CANCELLED,)) == [plain]
    assert ids(states=(JobState.QUEUED, JobState.CANCELLED)) == [other, plain]
    assert ids(name="other") == ids(project="vision") == ids(label=("team", "a")) == [other]
    assert ids(project="*Visi*") == ids(project="v*n") == [other]
    assert ids(project="visio") == ids(project="v%n") == ids(project="*_*") == []
    assert ids(label=("team", "1")) == ids(label=("TEAM", "a")) == []


def test_a_page_is_searched_by_parts_of_name_id_or_user(database: Database) -> None:
    scenes.add_node(database)
    first = scenes.submit(database, name="gpt-1.00_mine")
    second = scenes.submit(database, name="digits")
    with database.jobs() as session:
        session.execute(update(JobRow).where(JobRow.id == second).values(actor="grace"))
    scenes.start(database, second)

    def ids(**wanted: object) -> list[str]:
        with database.read_jobs() as session:
            return [
                row.id
                for row in listing.page(session, listing.JobQuery(**wanted), among=EVERY, limit=10)[
                    0
                ]
            ]  # type: ignore[arg-type]

    assert ids(search="gpt-1") == ids(search="00_M") == [first]
    assert ids(search="i") == [second, first]
    assert ids(search="_") == [first]  # no pattern: the typed text is searched literally
    assert ids(search="%") == []
    assert ids(search=second[-12:].upper()) == ids(search=second) == [second]
    assert ids(search=first[:13]) in (
        [second, first],
        [first],
    )  # a prefix is a time, which both may have in common
    assert ids(owner="grace") == ids(node="n1") == [second]
    assert ids(owner="*RAC*") == [second]
    assert ids(owner="gra") == ids(owner="*gr%e*") == ids(owner="*_*") == ids(node="n") == []


def test_a_foreign_cursor_is_refused(database: Database) -> None:
    with database.read_jobs() as session, pytest.raises(LockstepError) as refusal:
        listing.page(session, listing.JobQuery(cursor="' or 1=1"), among=EVERY, limit=3)
    assert refusal.value.code is ErrorCode.INVALID


def test_the_queue_goes_by_priority_then_age(database: Database) -> None:
    low, first, second = (scenes.submit(database, priority=priority) for priority in (10, 50, 50))
    with database.read_jobs() as session:
        assert [job.id for job in listing.queued(session, among=EVERY, limit=10)] == [
            first,
            second,
            low,
        ]


def test_every_step_is_taken_from_its_sources_alone(database: Database) -> None:
    job_id = scenes.submit(database)
    with database.jobs() as session:
        for name, step in TRANSITIONS.items():
            for source in JobState:
                session.execute(update(JobRow).values(state=source, finished_at=None))
                before = jobs.get(session, job_id)
                assert before is not None
                version, told = before.version, len(events.page(session, job_id, limit=500))
                taken = transitions.take(
                    session, job_id, name, attempt=None, reason="a test", actor="ada"
                )
                after = jobs.get(session, job_id)
                assert after is not None
                assert taken == (source in step.sources)
                assert after.state is (step.target if taken else source)
                assert after.version == version + taken
                assert len(events.page(session, job_id, limit=500)) == told + taken
                assert (after.finished_at is not None) == (taken and step.target in TERMINAL)


def test_a_step_of_an_attempt_that_is_not_the_newest_is_refused(database: Database) -> None:
    claimed = scenes.run(database)
    with database.jobs() as session:
        assert not transitions.take(
            session, claimed.job_id, "fail", attempt=2, reason="late", actor="ada"
        )
    assert scenes.state_of(database, claimed.job_id) is JobState.RUNNING


def test_a_step_of_an_earlier_attempt_is_refused(database: Database) -> None:
    first = scenes.run(database)
    scenes.end(database, first, Reason.KILLED)
    scenes.release(database, first)
    scenes.skip_backoff(database, first.job_id)
    scenes.start(database, first.job_id)
    before = scenes.state_of(database, first.job_id)
    with database.jobs() as session:
        assert not transitions.take(
            session, first.job_id, "fail", attempt=1, reason="late", actor="ada"
        )
    assert scenes.state_of(database, first.job_id) is before


def test_a_queued_job_is_cancelled_at_once(database: Database) -> None:
    job_id = scenes.submit(database)
    with database.jobs() as session:
        assert stopping.cancel(session, job_id, "ada").state is JobState.CANCELLED
    assert scenes.kinds(database, job_id) == ["submitted", "cancelled"]


def test_a_running_job_is_cancelled_after_its_stop(database: Database) -> None:
    claimed = scenes.run(database)
    with database.jobs() as session:
        job = stopping.cancel(session, claimed.job_id, "ada")
        assert (job.state, job.intent) == (JobState.RUNNING, Intent.CANCEL)
    assert scenes.renew(database, claimed) == {claimed.assignment_id: Intent.CANCEL}
    assert scenes.end(database, claimed, Reason.CANCELLED)
    after = scenes.job_of(database, claimed.job_id)
    assert (after.state, after.intent) == (JobState.CANCELLED, None)


def test_a_job_that_no_node_has_claimed_is_cancelled_at_once(database: Database) -> None:
    scenes.add_node(database)
    job_id = scenes.submit(database)
    placed = scenes.placed_on(database, job_id)
    with database.jobs() as session:
        assert stopping.cancel(session, job_id, "ada").state is JobState.CANCELLED
    assert scenes.free_devices(database) == [0, 1, 2, 3]
    assert scenes.claim(database, placed.assignments[0].assignment_id) is None


def test_a_second_cancel_changes_nothing(database: Database) -> None:
    claimed = scenes.run(database)
    for _ in range(2):
        with database.jobs() as session:
            stopping.cancel(session, claimed.job_id, "ada")
    assert scenes.kinds(database, claimed.job_id).count("cancel_requested") == 1


@pytest.mark.parametrize("reason", [Reason.SUCCEEDED, Reason.USER_ERROR, Reason.CANCELLED])
def test_a_job_that_has_ended_cannot_be_cancelled(database: Database, reason: Reason) -> None:
    claimed = scenes.run(database)
    scenes.end(database, claimed, reason)
    before = scenes.job_of(database, claimed.job_id)
    with pytest.raises(LockstepError) as refusal, database.jobs() as session:
        stopping.cancel(session, claimed.job_id, "ada")
    assert refusal.value.code is ErrorCode.CONFLICT
    after = scenes.job_of(database, claimed.job_id)
    assert (after.state, after.version) == (before.state, before.version)


def test_a_cancel_replaces_a_timeout_and_not_the_reverse(
    database: Database,
) -> None:
    claimed = scenes.run(database)
    with database.jobs() as session:
        assert stopping.ask(
            session, claimed.job_id, Intent.TIMEOUT, actor="lockstep", message="too long"
        )
        assert stopping.ask(session, claimed.job_id, Intent.CANCEL, actor="ada", message="stop")
        assert not stopping.ask(
            session, claimed.job_id, Intent.TIMEOUT, actor="lockstep", message="too long"
        )
    assert scenes.job_of(database, claimed.job_id).intent is Intent.CANCEL


def waited(job: JobRow) -> list[Any]:
    columns = "wait_position", "wait_reason", "wait_code", "wait_facts", "hold"
    return [getattr(job, name) for name in columns]


def test_a_placed_job_waits_for_nothing(database: Database) -> None:
    scenes.add_node(database)
    job_id = scenes.submit(database)
    hold = {"since": 1.0, "kind": "cpu", "nodes": ["n1"]}
    waits = Waiting(1, "waits", "holds", {"needs": 2}, hold)
    with database.jobs() as session:
        set_waiting(session, {job_id: waits})
    job = scenes.job_of(database, job_id)
    assert Waiting(*waited(job)) == waits
    scenes.place(database, job_id)
    with database.jobs() as session:
        set_waiting(session, {job_id: waits})
    job = scenes.job_of(database, job_id)
    assert waited(job) == [None] * 5
