"""The check of documented parameters finds each kind of mismatch."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "docs/parameters.py"
PROBLEMS = runpy.run_path(str(FILE))["problems"]
FUNCTION = '''
def add(one: int, other: int, *rest: int) -> int:
    """Add.

    Parameters
    ----------
    {}
        A number.

    Returns
    -------
    int
    """
'''


@pytest.mark.parametrize("names", ["one : int", "one, other", "other : int, optional", "*rest"])
def test_names_of_the_signature_are_accepted(names: str) -> None:
    assert list(PROBLEMS(FUNCTION.format(names))) == []


@pytest.mark.parametrize(
    ("names", "problem"),
    [("two : int", "add documents two, which it does not take"), ("other, one", "another order")],
)
def test_other_names_and_another_order_are_reported(names: str, problem: str) -> None:
    ((line, found),) = PROBLEMS(FUNCTION.format(names))
    assert line == 2
    assert problem in found


def test_a_class_documents_its_constructor() -> None:
    text = FUNCTION.format("other").replace(
        "def add(one: int, other: int, *rest: int) -> int", "class Sum"
    )
    made = f"{text}\n    def __init__(self, one: int): ...\n"
    ((_, found),) = PROBLEMS(made)
    assert found == "Sum documents other, which it does not take"
