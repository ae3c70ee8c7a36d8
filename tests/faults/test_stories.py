"""Runs in which the machine of ``test_model`` has found a fault, repeated each time.

Random selection may not find them again.

Not here: any check of its own; the model has the required state.
"""

from __future__ import annotations

import pytest

from tests.faults.test_model import life_of
from tests.harness.life.in_process import Service
from tests.harness.life.machine import Life


@pytest.fixture
def life(service: Service) -> Life:
    return life_of(service)()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("succeeded", None),
        ("succeeded", "succeeded"),
        ("network", "network"),
        ("preempted", None),
        ("shutdown", "succeeded"),
    ],
)
def test_a_gang_of_which_one_node_ends_before_the_other_has_begun(
    life: Life, first: str, second: str | None
) -> None:
    life.begin(shapes=["gang"], started=0)
    life.reconcile()
    life.die_or_come_back(node="n2", remembers=False)
    life.minutes_pass(rounds=1, unheard="")
    life.finish(reason=first, which=0)
    life.agree()
    life.die_or_come_back(node="n2", remembers=False)
    if second is not None:
        life.heartbeat("n2")
        life.agree()
        if life.grips:
            life.finish(reason=second, which=0)
    life.teardown()


@pytest.mark.parametrize("jumps", [1, 3])
def test_a_job_in_backoff_when_the_clock_is_set_back(life: Life, jumps: int) -> None:
    life.begin(shapes=["one", "gang", "gang"], started=1)
    life.finish(reason="preempted", which=0)
    life.agree()
    for _jump in range(jumps):
        life.clock_jump(forward=False)
        life.agree()
    life.teardown()


def test_a_backoff_that_begins_while_the_clock_is_an_hour_ahead(life: Life) -> None:
    """Both changes of the clock are between two cycles, so no cycle sees either of them."""
    life.begin(shapes=["one"], started=1)
    life.clock_jump(forward=True)
    life.finish(reason="killed", which=0)
    life.agree()
    life.clock_jump(forward=False)
    life.teardown()


def test_a_dead_node_keeps_no_job_after_the_clock_is_set_back(life: Life) -> None:
    life.begin(shapes=["one"], started=1)
    life.die_or_come_back(node="n1", remembers=False)
    life.clock_jump(forward=False)
    for _round in range(8):  # two minutes: a lease, and a job's wait after it
        life.minutes_pass(rounds=1, unheard="n1")
    assert [job.attempt for job in life.model.jobs.values()] == [2]
    life.teardown()
