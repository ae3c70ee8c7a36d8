"""Every item of the contract has a test with its number in a marker."""

from __future__ import annotations

import pytest

from tests.engine import contract


@pytest.fixture(scope="module")
def tested() -> set[int]:
    return {item for item, _, _ in contract.tests()}


@pytest.mark.parametrize("number", contract.ITEMS)
def test_every_item_of_the_contract_has_a_test(number: int, tested: set[int]) -> None:
    assert number in tested, contract.ITEMS[number]


def test_no_test_names_an_item_that_does_not_exist(tested: set[int]) -> None:
    assert tested <= contract.ITEMS.keys()
