"""The table of mutants fits the code: each text occurs once, and each test is there.

Not here: that the tests fail (``make mutants``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from tests.mutants import ROOT, Mutant, rows

ROWS = rows()


@cache
def functions(file: str) -> frozenset[str]:
    """Names of the test functions of a file, those of classes as ``Class::function``."""

    def named(body: list[ast.stmt], prefix: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from named(node.body, f"{prefix}{node.name}::")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{prefix}{node.name}"

    return frozenset(named(ast.parse((ROOT / file).read_text(encoding="utf-8")).body, ""))


@pytest.mark.parametrize("mutant", ROWS, ids=lambda mutant: mutant.name)
def test_the_text_of_a_mutant_occurs_once_and_its_tests_exist(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.old) == 1
    assert mutant.old != mutant.new
    for test in mutant.tests:
        file, _, name = test.partition("[")[0].partition("::")
        assert name in functions(file), test


def test_each_mutant_has_a_name_of_its_own_and_a_test() -> None:
    assert len({mutant.name for mutant in ROWS}) == len(ROWS)
    assert all(mutant.tests for mutant in ROWS)
