"""Strict reading of JSON: each leniency that is refused here would cause an error later."""

from __future__ import annotations

import json

import pytest

from lockstep.api.http import body
from lockstep.domain.errors import ErrorCode, LockstepError


def refusal(raw: bytes) -> LockstepError:
    with pytest.raises(LockstepError) as caught:
        body.decode(raw)
    return caught.value


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "the body is empty; expected a JSON object"),
        (b" \n", "the body is empty"),
        (
            b"name: first\nkind: train\n",
            "the body is not JSON: expecting value at line 1, column 1",
        ),
        (
            b'{"name": "a",\n  "kind": }',
            "the body is not JSON: expecting value at line 2, column 11",
        ),
        (b'{"name": "a"} {}', "extra data at line 1, column 15"),
        (b'{"name": "a', "unterminated string at line 1, column 10"),
        (b'{"name": "\xff"}', "the body is not UTF-8: byte 0xff at offset 10"),
        (b'{"lr": NaN}', "NaN is not valid JSON; expected a finite number"),
        (b'{"lr": -Infinity}', "-Infinity is not valid JSON"),
        (b'{"lr": 1e999}', "the number 1e999 exceeds the range of a float"),
        (b'{"n": ' + b"9" * 5_000 + b"}", "has 5000 digits; expected at most 20"),
        (
            b'{"name": "a", "kind": "train", "name": "b"}',
            "the name 'name' occurs twice in one object",
        ),
        (b"[" * 100_000, "nests more than 64"),
        (b"[" * 66 + b"]" * 66, "nests more than 64"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_lenient_json_is_refused_with_its_position(raw: bytes, says: str) -> None:
    error = refusal(raw)
    assert error.code is ErrorCode.MALFORMED
    assert says in error.message
    assert error.message.endswith("; nothing was written")
    assert "send the spec as JSON" in error.next_step


@pytest.mark.parametrize(
    ("raw", "pointer"),
    [
        (rb'{"env": {"A": "x\u0000y"}}', "/env/A"),
        (rb'{"labels": ["ok", "\ud800"]}', "/labels/1"),
        (rb'{"\udfff": 1}', ""),
    ],
)
def test_text_that_no_database_keeps_is_refused_with_a_pointer(raw: bytes, pointer: str) -> None:
    error = refusal(raw)
    assert error.code is ErrorCode.INVALID
    assert error.fields[0].pointer == pointer


def test_a_document_is_read_as_it_was_written() -> None:
    document = {
        "name": "größe-✓",
        "list": [1, 2.5, None, True, "\U0001f600"],
        "deep": {"a": {"b": []}},
    }
    assert body.decode(json.dumps(document).encode()) == document
    assert (
        body.decode(b"\xef\xbb\xbf" + json.dumps(document, ensure_ascii=False).encode()) == document
    )


def test_bodies_that_mean_the_same_have_one_fingerprint() -> None:
    one = body.fingerprint(body.decode(b'{"a": 1, "b": {"c": 2, "d": 3}}'))
    assert body.fingerprint(body.decode(b'{"b":{"d":3,"c":2},\n "a":1}')) == one
    assert body.fingerprint(body.decode(b'{"b":{"d":3,"c":2},"a":"1"}')) != one
