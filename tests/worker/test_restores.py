"""Rules of an agent for an assignment that the database does not have."""

from __future__ import annotations

import pytest

from lockstep.domain.life.outcomes import Reason
from lockstep.storage.attempts import attempts
from lockstep.storage.db.database import Database
from lockstep.worker.agent import restores
from lockstep.worker.agent.restores import Restores
from tests.storage import scenes


def test_an_assignment_without_a_row_ends_at_its_fence() -> None:
    seen = Restores()
    assert not seen.is_over("a", fence_deadline=50.0, now=49.9)
    assert seen.in_doubt({"a"})
    assert seen.is_over("a", fence_deadline=50.0, now=50.0)
    assert not seen.in_doubt(set())


def test_an_assignment_whose_row_is_back_is_not_in_doubt() -> None:
    seen = Restores()
    assert not seen.is_over("a", fence_deadline=50.0, now=10.0)
    seen.present("a")
    assert not seen.in_doubt({"a"})


def test_a_hold_has_an_end_and_a_heartbeat_begins_another() -> None:
    seen = Restores()
    assert seen.may_hold(0.0)
    assert seen.may_hold(restores.HOLD_SECONDS_MAX - 1)
    assert not seen.may_hold(restores.HOLD_SECONDS_MAX)
    seen.renewed("a")
    assert seen.may_hold(restores.HOLD_SECONDS_MAX)


def test_another_place_of_the_database_is_a_restore() -> None:
    seen = Restores()
    assert [seen.renewed(place) for place in "aabba"] == [False, False, True, False, True]


@pytest.mark.parametrize("present", [True, False])
def test_only_a_row_that_is_there_proves_a_lost_lease(database: Database, present: bool) -> None:
    claim = scenes.run(database)
    scenes.end(database, claim, Reason.CANCELLED)
    wanted = claim.assignment_id if present else "another"
    with database.read_jobs() as session:
        assert (wanted in attempts.known(session, [wanted])) is present
