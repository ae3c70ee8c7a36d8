"""Changes of values by path: only that value changes, and an invalid path is reported."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.domain.spec.changes import FieldNotFoundError, path_of, put

names = st.text(min_size=1, max_size=3)
values = st.recursive(
    st.none() | st.integers() | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)


def _leaves(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if isinstance(value, dict) and value:
        return {
            place: leaf
            for name, inner in value.items()
            for place, leaf in _leaves(inner, (*path, name)).items()
        }
    if isinstance(value, list) and value:
        inner = {str(number): each for number, each in enumerate(value)}
        return {
            place: leaf
            for name, each in inner.items()
            for place, leaf in _leaves(each, (*path, name)).items()
        }
    return {path: value}


@given(st.dictionaries(names, values, min_size=1, max_size=4), st.data())
def test_one_value_changes_and_no_other(document: dict[str, Any], data: st.DataObject) -> None:
    before = _leaves(copy.deepcopy(document))
    path = data.draw(st.sampled_from(sorted(before)))
    put(document, path, "new")
    assert _leaves(document) == {**before, path: "new"}


def test_missing_objects_are_created_and_single_values_are_replaced() -> None:
    document: dict[str, Any] = {"code": None}
    put(document, ["train", "optimizer", "lr"], 0.1)
    put(document, ["code", "upload"], "x")
    assert document == {"code": {"upload": "x"}, "train": {"optimizer": {"lr": 0.1}}}


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (["a", "3"], "a has no entry '3': use an index from 0 to 2"),
        (["a", "-1"], "a has no entry '-1'"),
        (["a", "x"], "a has no entry 'x'"),
        (["a", "0", "b"], "a.0 is a single value"),
    ],
)
def test_an_invalid_path_is_reported_with_its_last_valid_part(path: list[str], words: str) -> None:
    document = {"a": [1, 2, 3]}
    with pytest.raises(FieldNotFoundError, match=words):
        put(document, path, 0)
    assert document == {"a": [1, 2, 3]}


def test_a_pointer_is_read_as_rfc_6901_has_it() -> None:
    assert path_of("/a~1b/m~0n/0/") == ["a/b", "m~n", "0", ""]
    assert path_of("/~01") == ["~1"]
    for wrong in ("", "a", "train.steps", "/a~2", "/~"):
        with pytest.raises(ValueError, match="JSON pointer"):
            path_of(wrong)
