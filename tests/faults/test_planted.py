"""The machine finds each of the planted bugs within its default budget.

This shows that its silence about a bug means that there is none. An ordinary run plants two of
them; ``-m drill`` plants all, on both databases.
"""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.faults.planted import PLANTED, Plant, cancel_lost_in_a_requeue, fencing_off
from tests.faults.test_model import BUDGET, life_of
from tests.harness.in_process import Service
from tests.harness.model import PromiseBroken


@pytest.mark.parametrize(
    "plant", [fencing_off, cancel_lost_in_a_requeue], ids=lambda plant: plant.__name__
)
def test_the_machine_finds_a_planted_bug(
    plant: Plant, sqlite_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    find(plant, sqlite_service, monkeypatch)


@pytest.mark.drill
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_the_machine_finds_every_planted_bug(
    plant: Plant, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    find(plant, service, monkeypatch)


def find(plant: Plant, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(PromiseBroken) as found:
        run_state_machine_as_test(life_of(service), settings=BUDGET)
    print(f"{plant.__name__}: found after {service.wiped} lives: {found.value}")
