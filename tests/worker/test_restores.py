"""Rules of an agent for an assignment that the database does not have."""

from __future__ import annotations

import pytest

from lockstep.worker.agent import restores
from lockstep.worker.agent.restores import Restores


@pytest.fixture
def seen() -> Restores:
    """After a heartbeat at 100 s of the database's clock."""
    found = Restores()
    found.renewed(95.0, 100.0)
    return found


@pytest.mark.parametrize("before", [100.0, 101.0], ids=["its own", "one whose answer was lost"])
def test_an_absent_assignment_of_a_continuous_database_is_lost_at_once(
    seen: Restores, before: float
) -> None:
    seen.renewed(before, 105.0)
    assert seen.is_lost("a", fence_deadline=50.0, now=10.0)
    assert not seen.in_doubt({"a"})


@pytest.mark.parametrize("before", [99.0, None], ids=["older", "without this node"])
def test_an_absent_assignment_of_a_restored_database_ends_at_its_fence(
    seen: Restores, before: float | None
) -> None:
    seen.renewed(before, None if before is None else 105.0)
    assert not seen.is_lost("a", fence_deadline=50.0, now=10.0)
    assert seen.in_doubt({"a"})
    seen.renewed(105.0, 110.0)  # continuous since
    assert not seen.is_lost("a", fence_deadline=50.0, now=49.9)
    assert seen.is_lost("a", fence_deadline=50.0, now=50.0)
    assert not seen.in_doubt(set())


def test_an_assignment_that_is_back_is_lost_at_once_when_it_is_absent_again(
    seen: Restores,
) -> None:
    seen.renewed(99.0, 105.0)
    assert not seen.is_lost("a", fence_deadline=50.0, now=10.0)
    seen.present("a")
    seen.renewed(105.0, 110.0)
    assert seen.is_lost("a", fence_deadline=50.0, now=20.0)


def test_a_hold_has_an_end_and_a_heartbeat_begins_another(seen: Restores) -> None:
    assert seen.may_hold(0.0)
    assert seen.may_hold(restores.HOLD_SECONDS_MAX - 1)
    assert not seen.may_hold(restores.HOLD_SECONDS_MAX)
    seen.renewed(100.0, 105.0)
    assert seen.may_hold(restores.HOLD_SECONDS_MAX)
