"""Errors of an invalid document: field, value, expectation, next step; one error per value."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.domain.errors import ErrorCode, FieldError, LockstepError
from lockstep.domain.spec.reading import read_spec
from tests.domain.documents import changed, script_document, train_document


def refusal(document: object) -> LockstepError:
    with pytest.raises(LockstepError) as caught:
        read_spec(document)
    return caught.value


def only(document: object) -> FieldError:
    error = refusal(document)
    assert len(error.fields) == 1, error.fields
    return error.fields[0]


# (changed pointer, value sent, pointer of the error, words of its message, words of its next step)
CASES: list[tuple[str, Any, str, str, str]] = [
    (
        "/name",
        "Bad Name",
        "/name",
        "lower-case letters, digits, '.', '_' and '-'",
        "use only these characters",
    ),
    ("/name", 7, "/name", "expected a text, got 7", "quotes"),
    ("/kind", "trian", "/kind", "expected train or script, got 'trian'", "did you mean train?"),
    ("/resources/gpus", 0, "/resources/gpus", "expected at least 1, got 0", "use 1 or more"),
    (
        "/resources/gpus",
        5000,
        "/resources/gpus",
        "expected at most 4096, got 5000",
        "use 4096 or less",
    ),
    (
        "/resources/gpus",
        "two",
        "/resources/gpus",
        "a number of devices, or {min: 1, max: 8}, got 'two'",
        "one of these",
    ),
    (
        "/resources/gpus",
        True,
        "/resources/gpus",
        "expected a number, got true",
        "write it as a number",
    ),
    (
        "/resources/gpus",
        2.5,
        "/resources/gpus",
        "expected a whole number, got 2.5",
        "fractional part",
    ),
    ("/resources/gpus", {"min": 1}, "/resources/gpus/max", "is required", "add it"),
    (
        "/outputs",
        {"keep": ["!*.tmp", "!data/"]},
        "/outputs/keep",
        "takes names away, so nothing would be kept",
        'put "**" first',
    ),
    (
        "/resources/gpus",
        {"min": 4, "max": 2},
        "/resources/gpus/max",
        "at least min (4), got 2",
        "raise max",
    ),
    (
        "/resources",
        {"gpus": 3, "nodes": 2},
        "/resources/gpus",
        "a multiple of nodes (2)",
        "omit nodes",
    ),
    (
        "/train/batch",
        64,
        "/train/batch",
        "an object with fields such as micro_size, size, got 64",
        "{name: value}",
    ),
    ("/train/batch/size", -1, "/train/batch/size", "expected at least 1, got -1", "use 1 or more"),
    (
        "/train/batch/micro_size",
        "aut",
        "/train/batch/micro_size",
        "a number of samples, or auto, got 'aut'",
        "these",
    ),
    (
        "/train/batch/micro_size",
        0,
        "/train/batch/micro_size",
        "expected at least 1, got 0",
        "use 1 or more",
    ),
    (
        "/train/batch/micro_sice",
        8,
        "/train/batch/micro_sice",
        "expected one of micro_size, size",
        "did you mean micro_size?",
    ),
    ("/train/steps", -5, "/train/steps", "expected at least 1, got -5", "use 1 or more"),
    ("/train/steps", None, "/train/steps", "expected steps or epochs, got neither", "add one"),
    (
        "/train/epochs",
        3,
        "/train/epochs",
        "either steps (10) or epochs, not both, got 3",
        "remove one",
    ),
    ("/train/lr", 0.1, "/train/lr", "unknown field", "did you mean train.optimizer.lr?"),
    (
        "/train/timeout_seconds",
        9,
        "/train/timeout_seconds",
        "unknown field",
        "did you mean timeout_seconds at the top level?",
    ),
    (
        "/train/task",
        "causal_ml",
        "/train/task",
        "built-in task (causal_lm, hf_causal_lm, image_classification)",
        "mean causal_lm?",
    ),
    (
        "/train/task",
        "x.py:X",
        "/code",
        "is required, because the task x.py:X is a file",
        "--code DIR",
    ),
    (
        "/train/task_args",
        {"layerz": 2},
        "/train/task_args/layerz",
        "expected one of context, dropout, glob, heads",
        "mean layers?",
    ),
    (
        "/train/task_args",
        {"layers": 0},
        "/train/task_args/layers",
        "expected at least 1, got 0",
        "use 1 or more",
    ),
    (
        "/train/task_args",
        {"width": 100, "heads": 3},
        "/train/task_args/width",
        "multiple of heads (3), got 100",
        "use 99",
    ),
    (
        "/train/optimizer",
        {"name": "sgdd"},
        "/train/optimizer/name",
        "adamw, sgd or the path of a class, such as torch.optim.NAdam, got 'sgdd'",
        "did you mean sgd?",
    ),
    (
        "/train/optimizer",
        {"name": "torch.optim.NAdam", "args": {"lr": 0.1}},
        "/train/optimizer/args/lr",
        "is a field of the optimizer, got 0.1",
        "write it as lr",
    ),
    (
        "/train/optimizer",
        {"name": "torch.optim.NAdam", "momentum": 0.1},
        "/train/optimizer/momentum",
        "unknown field; expected one of args, lr, name, weight_decay",
        "write it in args, if the class takes it",
    ),
    (
        "/train/optimizer",
        {"lr": 0},
        "/train/optimizer/lr",
        "expected more than 0, got 0",
        "a value above 0",
    ),
    (
        "/train/optimizer",
        {"name": "sgd", "betas": [0, 0]},
        "/train/optimizer/betas",
        "expected one of lr, momentum",
        "remove it",
    ),
    (
        "/train/optimizer",
        {"name": "sgd", "nesterov": True},
        "/train/optimizer/nesterov",
        "momentum above 0",
        "such as 0.9",
    ),
    (
        "/train/optimizer/lr",
        "fast",
        "/train/optimizer/lr",
        "expected a number, got 'fast'",
        "such as 3.0e-4",
    ),
    (
        "/train/schedule/min_lr",
        1,
        "/train/schedule/min_lr",
        "at most optimizer.lr (0.0003), got 1",
        "raise optimizer.lr",
    ),
    (
        "/train/deterministic",
        "maybe",
        "/train/deterministic",
        "true or false, got 'maybe'",
        "write true or false",
    ),
    (
        "/code",
        {"foo": 1},
        "/code",
        "exactly one of {upload: SHA256}, {git: URL, ref: REF} and {path: FOLDER}",
        "these",
    ),
    (
        "/code",
        {"git": "u", "path": "/x"},
        "/code",
        "exactly one of {upload: SHA256}, {git",
        "these",
    ),
    (
        "/code",
        {"upload": "12"},
        "/code/upload",
        "64 lower-case hexadecimal digits, got '12'",
        "these characters",
    ),
    ("/env/RANK", "0", "/env/RANK", "the launcher sets it for each rank", "use another name"),
    ("/env/1a", "x", "/env/1a", "not beginning with a digit, got '1a'", "these characters"),
    ("/env/PORT", 80, "/env/PORT", "expected a text, got 80", "quotes"),
    ("/labels/team", 1, "/labels/team", "expected a text, got 1", "quotes"),
    (
        "/timeout_seconds",
        math.nan,
        "/timeout_seconds",
        "expected a finite number, got nan",
        "write a number",
    ),
    (
        "/resourcess",
        {},
        "/resourcess",
        "unknown field; expected one of code, continues, env, kind",
        "did you mean resources?",
    ),
    ("/a~b", 1, "/a~0b", "unknown field", "remove it"),
    (
        "/resources/gpus",
        65,
        "/train/batch/size",
        "a batch of 64 cannot be split over 65 ranks",
        "at most 64 gpus",
    ),
]


@pytest.mark.parametrize(
    ("pointer", "value", "at", "message", "next_step"), CASES, ids=lambda case: repr(case)[:30]
)
def test_one_wrong_value_gets_one_complete_error(
    pointer: str, value: Any, at: str, message: str, next_step: str
) -> None:
    field = only(changed(train_document(), pointer, value))
    assert field.pointer == at
    assert message in field.message
    assert next_step in field.next_step


@pytest.mark.parametrize(
    ("command", "at", "message"),
    [
        ("train.py", "/script/command", "expected a list, got 'train.py'"),
        ([], "/script/command", "expected at least 1 entry"),
        ([""], "/script/command/0", "expected a script or a program"),
        (["x", "a\0"], "/script/command/1", "without NUL characters"),
        (["x", 3], "/script/command/1", "expected a text, got 3"),
    ],
)
def test_a_word_of_a_command_is_pointed_at_by_its_index(
    command: object, at: str, message: str
) -> None:
    field = only(changed(script_document(), "/script/command", command))
    assert field.pointer == at
    assert message in field.message


def test_the_refusal_names_the_first_field_and_counts_the_rest() -> None:
    document = changed(changed(train_document(), "/train/steps", -1), "/priority", 101)
    error = refusal(document)
    assert error.code is ErrorCode.INVALID
    assert error.message == "train.steps: expected at least 1, got -1 (and 1 more)"
    assert error.next_step == "use 1 or more"
    assert [field.pointer for field in error.fields] == ["/train/steps", "/priority"]
    assert [field.value for field in error.fields] == [-1, 101]


def test_every_wrong_argument_of_a_task_is_named_at_once() -> None:
    error = refusal(changed(train_document(), "/train/task_args", {"layers": "many", "widht": 1}))
    assert [field.pointer for field in error.fields] == [
        "/train/task_args/layers",
        "/train/task_args/widht",
    ]


def test_every_wrong_variable_is_named_at_once() -> None:
    error = refusal(changed(train_document(), "/env", {"RANK": "0", "WORLD_SIZE": "2", "OK": "1"}))
    assert [field.pointer for field in error.fields] == ["/env/RANK", "/env/WORLD_SIZE"]


@pytest.mark.parametrize("kind", ["train", "script"])
def test_a_kind_without_its_section_is_refused_with_its_name(kind: str) -> None:
    field = only({"name": "a", "kind": kind})
    assert (field.pointer, field.message) == (f"/{kind}", f"is required, because kind is {kind}")


def test_a_section_of_the_other_kind_is_refused_without_repeating_it() -> None:
    field = only({**train_document(), "script": {"command": ["train.py"]}})
    assert (field.pointer, field.message) == (
        "/script",
        "section not allowed, because kind is train",
    )


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        (None, "nothing"),
        ([], "a list"),
        ("x", "a text"),
        (3, "a number"),
        (0.5, "a number"),
        (True, "true or false"),
    ],
)
def test_a_document_that_is_no_object_is_refused_by_type(document: object, kind: str) -> None:
    error = refusal(document)
    assert (
        error.message
        == f"expected a job spec: an object with fields such as name and kind, got {kind}"
    )
    assert [field.pointer for field in error.fields] == [""]
    assert error.next_step


def test_a_name_that_is_a_number_is_refused() -> None:
    field = only({**train_document(), 5: "x"})
    assert (field.pointer, field.message) == ("/5", "expected a text as the field's name, got 5")


def test_a_long_value_is_cut_in_message_and_answer() -> None:
    field = only(changed(train_document(), "/name", "x" * 10_000))
    assert len(field.message) < 300
    assert len(field.value) <= 80


def test_a_field_that_is_written_as_null_is_shown_as_null() -> None:
    assert only(changed(train_document(), "/project", None)).message == "expected a text, got null"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
POINTERS = [
    "/name", "/kind", "/resources", "/resources/gpus", "/resources/gpu_type", "/train", "/train/batch",
    "/train/batch/micro_size", "/train/optimizer", "/train/optimizer/name", "/train/task", "/train/task_args",
    "/train/task_args/layers", "/train/schedule", "/code", "/code/upload", "/env", "/env/X", "/secrets", "/labels",
    "/retry", "/timeout_seconds", "/script", "/whatever",
]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(POINTERS), JSON)
def test_any_document_is_accepted_or_refused_with_serializable_errors(
    pointer: str, value: Any
) -> None:
    document = changed(train_document(), pointer, value)
    try:
        read_spec(document)
    except LockstepError as error:
        pointers = [field.pointer for field in error.fields]
        assert len(pointers) == len(set(pointers)) > 0
        for field in error.fields:
            assert field.message
            assert field.next_step
            assert "Input should" not in field.message
            json.dumps(field.value, allow_nan=False)
            _assert_points_into(document, field.pointer)


def _assert_points_into(document: Any, pointer: str) -> None:
    """Check that the document has all parts of the pointer except the last, which may be missing."""
    *parents, _ = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    here = document
    for part in parents:
        here = here[int(part)] if isinstance(here, list) else here[part]
