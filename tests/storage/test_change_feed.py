"""``storage.jobs.change_feed``: one statement finds what single statements find."""

from __future__ import annotations

import pytest

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.rights import EVERY, Within
from lockstep.domain.training.metrics import StepValues
from lockstep.storage.attempts import events, nodes
from lockstep.storage.db.database import Database
from lockstep.storage.jobs import change_feed, jobs
from lockstep.storage.series import series
from tests.harness.databases import Urls
from tests.storage import scenes


def follow(database: Database) -> None:
    """Check each job after each step of its life against single statements."""
    first, second = scenes.submit(database), scenes.submit(database)
    seen = set()

    def check() -> None:
        for job_id in (first, second):
            found = change_feed.of_job(database, job_id, among=EVERY)
            with database.look_jobs() as look:
                mark = jobs.mark(look, job_id, among=EVERY)
                newest, any_node = events.newest_id(look, job_id), nodes.any_ever(look)
            with database.look_series() as look:
                batches = change_feed.counts(look, [job_id]).get(job_id, 0)
            assert found == (mark, batches, newest, any_node)
            seen.add(found)

    check()
    scenes.add_node(database)
    check()
    claimed = scenes.start(database, first)
    check()
    scenes.open_stream(database, claimed)
    for offset in range(3):
        with database.series() as session:
            assert series.append(
                session,
                assignment_id=claimed.assignment_id,
                token=claimed.token,
                offset_before=offset,
                offset_after=offset + 1,
                records=[StepValues(offset, 1.0, {"loss": 1.0})],
            )
        check()
    assert len(seen) >= 8
    for reference, among in (("no such job", EVERY), (first, Within(frozenset({"other"})))):
        with pytest.raises(LockstepError) as refusal:
            change_feed.of_job(database, reference, among=among)
        assert refusal.value.code is ErrorCode.NOT_FOUND
    assert change_feed.of_job(database, first[-12:], among=EVERY).job.id == first


def test_a_followed_job_has_the_marks_that_single_statements_find(database: Database) -> None:
    assert database.can_join
    follow(database)


def test_a_followed_job_has_its_marks_from_two_databases_without_a_join(
    postgres_urls: Urls, sqlite_urls: Urls
) -> None:
    database = Database(postgres_urls[0], sqlite_urls[1])
    assert not database.can_join
    follow(database)
    database.close()
