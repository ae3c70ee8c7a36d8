"""Every item of the contract has a test with its number in a marker."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine import contract


@pytest.mark.parametrize("number", contract.ITEMS)
def test_every_item_of_the_contract_has_a_test(number: int) -> None:
    assert number in {item for item, _, _ in contract.tests()}, contract.ITEMS[number]


def test_no_test_names_an_item_that_does_not_exist() -> None:
    assert {item for item, _, _ in contract.tests()} <= contract.ITEMS.keys()


@pytest.mark.parametrize("marked", [True, False])
def test_only_tests_with_a_marker_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marked: bool
) -> None:
    monkeypatch.setenv(contract.RECORD, str(tmp_path))
    item: Any = SimpleNamespace(
        nodeid="tests/engine/test_x.py::test_y[ddp]",
        get_closest_marker={"contract": marked or None}.get,
    )
    with contract.recorded(item):
        assert contract.Distance(0.25) <= 0.5
        assert not contract.Distance(0.75) <= 0.5
    assert contract.Distance(0.3) <= 0.5
    found = [
        json.loads(line)
        for file in tmp_path.iterdir()
        for line in file.read_text().split("\n")[:-1]
    ]
    expected = {"test": "tests/engine/test_x.py::test_y", "tolerance": 0.5, "value": 0.25}
    assert found == [expected] * marked
