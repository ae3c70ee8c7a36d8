"""Order in which test files are distributed to several workers.

Not here: xdist, which gives a whole file to one worker (``make test``).
"""

from __future__ import annotations

from types import SimpleNamespace

from tests import conftest

COLLECTED = (
    "api/test_a.py::two",
    "api/test_a.py::one",
    "domain/test_b.py::one",
    "e2e/test_c.py::one",
    "e2e/test_d.py::one",
)


def given_out(**config: object) -> list[str]:
    items = [
        SimpleNamespace(path=conftest.HERE / name.partition("::")[0], nodeid=name)
        for name in COLLECTED
    ]
    conftest.pytest_collection_modifyitems(
        SimpleNamespace(getoption=lambda _: False, **config), items
    )  # type: ignore[arg-type]
    return [item.nodeid for item in items]


def test_workers_get_long_folders_first_each_in_collection_order() -> None:
    assert given_out(workerinput={}) == [*COLLECTED[3:], *COLLECTED[:2], COLLECTED[2]]


def test_without_workers_nothing_is_reordered() -> None:
    assert given_out() == list(COLLECTED)


def test_long_folders_exist() -> None:
    assert [
        name
        for name in conftest.LONGEST_FIRST
        if not any((conftest.HERE / name).rglob("test_*.py"))
    ] == []
