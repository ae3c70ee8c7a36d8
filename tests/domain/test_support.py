"""Named features that do not exist yet: refused by name, but only if they are requested."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.spec import feature_gate
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.reading import read_spec
from tests.domain.documents import changed, train_document

# pointer: (requested value, words of the refusal, a value that requests nothing)
LATER: dict[str, tuple[Any, str, Any]] = {
    "/resources/gpus": ({"min": 1, "max": 2}, "elastic jobs", 2),
    "/secrets": (["TOKEN"], "secrets", []),
}


def two_devices() -> dict[str, Any]:
    return changed(train_document(), "/resources/gpus", 2)


def test_this_list_is_the_whole_table() -> None:
    assert [later.pointer for later in feature_gate.LATER] == list(LATER)


@pytest.mark.parametrize("pointer", LATER)
def test_a_missing_feature_is_refused_by_name_with_an_alternative(
    pointer: str,
) -> None:
    asked, what, _ = LATER[pointer]
    with pytest.raises(LockstepError) as caught:
        read_spec(changed(two_devices(), pointer, asked))
    error = caught.value
    assert error.code is ErrorCode.NOT_YET
    assert [(field.pointer, field.value) for field in error.fields] == [(pointer, asked)]
    assert what in error.fields[0].message
    assert "not available in this version of Lockstep" in error.message
    assert error.next_step == error.fields[0].next_step != ""


@pytest.mark.parametrize("pointer", LATER)
def test_a_feature_that_is_not_requested_is_accepted(pointer: str) -> None:
    read_spec(changed(train_document(), pointer, LATER[pointer][2]))


def test_everything_that_is_not_there_yet_is_named_at_once() -> None:
    document = changed(
        changed(train_document(), "/resources/gpus", {"min": 1, "max": 2}), "/secrets", ["TOKEN"]
    )
    with pytest.raises(LockstepError) as caught:
        read_spec(document)
    assert [field.pointer for field in caught.value.fields] == ["/resources/gpus", "/secrets"]


@pytest.mark.parametrize("pointer", LATER)
def test_each_pointer_is_a_field_of_the_spec(pointer: str) -> None:
    schema = JobSpec.model_json_schema()
    here = schema
    for name in pointer.strip("/").split("/"):
        assert name in here["properties"], pointer
        here = here["properties"][name]
        variants = [here, *here.get("anyOf", [])]
        reference = next((variant["$ref"] for variant in variants if "$ref" in variant), None)
        here = schema["$defs"][reference.rsplit("/", 1)[1]] if reference else here
