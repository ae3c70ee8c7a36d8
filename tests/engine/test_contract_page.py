"""Every item of the contract has a test with its number in a marker."""

from __future__ import annotations

import pytest

from tests.engine import contract


@pytest.mark.parametrize("number", contract.ITEMS)
def test_every_item_of_the_contract_has_a_test(number: int) -> None:
    assert number in {item for item, _, _ in contract.tests()}, contract.ITEMS[number]


def test_no_test_names_an_item_that_does_not_exist() -> None:
    assert {item for item, _, _ in contract.tests()} <= contract.ITEMS.keys()
