"""The whole service against the model of its guarantees, on both databases (P1, P2, P5, P6).

``-m drill`` runs the long form, with another seed each time. A failure prints the command that
repeats it.
"""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.harness.drills import long
from tests.harness.life.in_process import Service
from tests.harness.life.machine import Life

BUDGET: Final = settings(
    max_examples=16,
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
"""Budget of an ordinary run, in which it finds the mutants that ``tests/mutants.toml`` names.

Findings are printed as they were found: to shorten them takes minutes, which only the long form
does.
"""
LONG: Final = settings(
    BUDGET,
    max_examples=60,
    stateful_step_count=80,
    derandomize=False,
    phases=[Phase.generate, Phase.shrink],
)


def life_of(service: Service) -> type[Life]:
    """Return the state machine over this service."""
    machine: type[Life] = type("LifeOfJobs", (Life,), {"service": service})
    return machine


@pytest.mark.timeout(900)  # half a minute on an idle machine
@pytest.mark.parametrize("budget", [pytest.param(BUDGET, id="short"), long(LONG, seconds=1800)])
def test_no_order_of_events_breaks_a_promise(service: Service, budget: settings) -> None:
    run_state_machine_as_test(life_of(service), settings=budget)
