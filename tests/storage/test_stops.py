"""Grace of a requested stop: from the last save of the job, in any of its attempts."""

from __future__ import annotations

import pytest

from lockstep.domain.life.grace import Grace, SaveTime
from lockstep.domain.life.lifecycle import Intent
from lockstep.domain.life.outcomes import Reason
from lockstep.storage.attempts import stops
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.db.database import Database
from lockstep.storage.jobs import stopping
from tests.storage import scenes
from tests.storage.test_checkpoints import again


@pytest.fixture
def claimed(database: Database) -> Claim:
    return scenes.run(database)


def note(database: Database, claimed: Claim, seconds: float, *, measured: bool = True) -> bool:
    save = SaveTime(seconds=seconds, measured=measured)
    with database.jobs() as session:
        return stops.note_save(session, claimed.assignment_id, claimed.token, save)


def terms(database: Database, claimed: Claim) -> stops.StopTerms:
    with database.read_jobs() as session:
        return stops.terms(session, claimed.node_name)[claimed.assignment_id]


def cancel(database: Database, claimed: Claim, *, now: bool = False) -> Grace:
    with database.jobs() as session:
        job = stopping.cancel(session, claimed.job_id, "ada", now=now)
        assert job.intent is Intent.CANCEL
        return Grace.model_validate(job.stop_grace)


def test_a_cancel_states_the_grace_and_a_second_one_ends_it(
    database: Database, claimed: Claim
) -> None:
    assert terms(database, claimed) == stops.StopTerms(None, None)
    assert note(database, claimed, 4, measured=False)
    assert note(database, claimed, 14)
    grace = cancel(database, claimed)
    assert grace.sentence() == "at most 42 s: 3 × the last checkpoint, 14 s"
    assert cancel(database, claimed) == terms(database, claimed).grace == grace
    assert cancel(database, claimed, now=True).seconds == 0
    assert cancel(database, claimed).seconds == 0
    scenes.end(database, claimed, Reason.CANCELLED)
    assert scenes.job_of(database, claimed.job_id).stop_grace is None


def test_a_forecast_does_not_replace_the_duration_of_the_attempt_before(
    database: Database, claimed: Claim
) -> None:
    assert note(database, claimed, 14)
    second = again(database, claimed)
    assert note(database, second, 2, measured=False)
    assert terms(database, second).save == SaveTime(seconds=14, measured=True)
    assert not note(database, claimed, 99), "the first attempt has no valid token"
    assert terms(database, second).save == SaveTime(seconds=14, measured=True)
