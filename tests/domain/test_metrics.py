"""Format of a metrics line: round trips, non-finite values, and errors for invalid lines."""

from __future__ import annotations

import json
import math
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.domain.limits import METRIC_NAME_CHARS_MAX
from lockstep.domain.training.metrics import (
    NAME,
    StepValues,
    decode,
    encode,
    from_json,
    jsonable,
)

NAMES = st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9_./ -]{0,30}\Z")
VALUES = st.dictionaries(NAMES, st.floats(), max_size=6)
TIMES = st.floats(0, 4e9)


def _bits(value: float) -> bytes:
    return b"nan" if math.isnan(value) else struct.pack("<d", value)


@given(st.integers(0, 2**62 - 1), TIMES, VALUES)
def test_a_record_comes_back_to_the_last_bit(
    step: int, time: float, values: dict[str, float]
) -> None:
    back = decode(encode(StepValues(step, time, values)), now=-1.0, default_step=-1)
    assert (back.step, back.time) == (step, time)
    assert {name: _bits(value) for name, value in back.values.items()} == {
        n: _bits(v) for n, v in values.items()
    }


@given(VALUES)
def test_a_line_is_strict_json_without_a_newline(values: dict[str, float]) -> None:
    line = encode(StepValues(1, 0.5, values))
    assert "\n" not in line
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.mark.parametrize(
    ("value", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")]
)
def test_a_non_finite_value_travels_as_its_name(value: float, text: str) -> None:
    assert jsonable(value) == text
    assert _bits(from_json(text)) == _bits(value)
    assert json.loads(encode(StepValues(1, 0.0, {"train/loss": value})))["values"] == {
        "train/loss": text
    }


def test_a_finite_value_stays_a_number() -> None:
    assert jsonable(-0.0) == 0.0
    assert from_json(3) == 3.0


def test_a_scripts_flat_line_is_understood() -> None:
    assert decode('{"step": 12, "loss": 2.5}', now=7.0, default_step=3) == StepValues(
        12, 7.0, {"loss": 2.5}
    )
    assert decode('{"loss": 1, "time": 1.7e9}', now=7.0, default_step=3) == StepValues(
        3, 1.7e9, {"loss": 1.0}
    )
    assert decode(b'{"step": 1}', now=7.0, default_step=3) == StepValues(1, 7.0, {})


def test_a_line_with_values_and_other_names_has_all_of_them() -> None:
    line = '{"step": 1, "values": {"a": 1, "b": 2}, "b": 3, "loss": 4, "note": "x"}'
    found = decode(line, now=7.0, default_step=3)
    assert found[:3] == (1, 7.0, {"a": 1.0, "b": 2.0, "loss": 4.0})
    assert list(found.refused) == ["note"]


def test_a_duration_named_time_is_no_time_and_is_refused_by_name() -> None:
    found = decode('{"step": 1, "time": 0.35, "loss": 4}', now=7.0, default_step=3)
    assert found[:3] == (1, 7.0, {"loss": 4.0})
    assert "give a duration another name" in found.refused["time"]


def test_pythons_own_bare_nan_and_infinity_are_understood() -> None:
    line = json.dumps({"step": 1, "a": math.nan, "b": math.inf, "c": -math.inf})
    values = decode(line, now=0.0, default_step=0).values
    assert math.isnan(values["a"])
    assert (values["b"], values["c"]) == (math.inf, -math.inf)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "not valid JSON: EOF while parsing a value"),
        ("{", "not valid JSON: EOF while parsing an object"),
        ("[1]", "expected a JSON object"),
        ("3", "expected a JSON object"),
        ('{"step": -1}', "step: expected a whole number of at least 0, got -1"),
        ('{"step": 1.5}', "step: expected a whole number"),
        ('{"step": true}', "step: expected a whole number"),
        ('{"step": null}', "step: expected a whole number"),
        ('{"step": 4611686018427387904}', "step: expected a whole number"),
        ('{"time": "now"}', "time: expected seconds since the epoch, got 'now'"),
        ('{"time": NaN}', "time: expected seconds since the epoch"),
        ('{"time": -1}', "time: expected seconds since the epoch"),
        ('{"time": 1700000000000}', "time: expected seconds since the epoch"),
    ],
)
def test_a_bad_line_has_an_error_message(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        decode(line, now=0.0, default_step=0)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("note", '"high"', 'expected a number or one of NaN, Infinity, -Infinity; got "high"'),
        ("done", "true", "got true"),
        ("missing", "null", "got null"),
        ("list", "[1]", "expected a number or one of"),
        ("nested", '{"a": 1}', 'got {"a": 1}'),
        ("large", "1" + "0" * 400, "expected a number below"),
        ("a\\nb", "1", "not a metric name"),
        ("", "1", "not a metric name"),
        ("/a", "1", "not a metric name"),
    ],
)
@pytest.mark.parametrize(
    "form",
    ['{"step": 3, "loss": 2.5, %s, "lr": 1}', '{"step": 3, "values": {"loss": 2.5, %s, "lr": 1}}'],
)
def test_one_bad_value_does_not_take_the_good_ones_with_it(
    form: str, name: str, value: str, why: str
) -> None:
    record = decode(form % f'"{name}": {value}', now=7.0, default_step=0)
    assert (record.step, record.time, record.values) == (3, 7.0, {"loss": 2.5, "lr": 1.0})
    ((refused, reason),) = record.refused.items()
    assert refused == name.replace("\\n", "\n")
    assert why in reason


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        pytest.param(b'{"\xff": 1}', "not valid JSON: invalid unicode", id="no-text"),
        pytest.param('{"time": 1' + "0" * 400 + "}", "time: expected seconds", id="large-time"),
        pytest.param('{"a":' * 100_000, "not valid JSON: recursion limit", id="deeply-nested"),
    ],
)
def test_an_unusual_line_is_a_bad_line_and_no_crash(line: str | bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        decode(line, now=0.0, default_step=0)


@given(st.text(max_size=30) | st.binary(max_size=30))
def test_no_line_makes_reading_fail_in_another_way(line: str | bytes) -> None:
    with suppress(ValueError):
        decode(line, now=0.0, default_step=0)


def test_a_name_may_have_the_limits_length_and_no_more() -> None:
    assert NAME.fullmatch("a" * METRIC_NAME_CHARS_MAX)
    assert not NAME.fullmatch("a" * (METRIC_NAME_CHARS_MAX + 1))
