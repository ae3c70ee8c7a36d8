"""Metadata of series: the table, definitions of scripts over it, groups and order."""

from __future__ import annotations

import json
import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.domain import limits
from lockstep.domain.kinds.devices import DEVICES
from lockstep.domain.training.definitions import (
    SeriesDefinition,
    definitions_in,
    looks_defining,
)
from lockstep.domain.training.metrics import NAME
from lockstep.domain.training.series import (
    METRICS,
    SYSTEM_SERIES,
    Metadata,
    described,
    described_together,
    main_series,
    metadata_of,
    of_the_machine,
)


def _line(**definitions: object) -> bytes:
    return json.dumps({"define": definitions}).encode()


def _defined(line: bytes) -> dict[str, SeriesDefinition]:
    found = definitions_in(line)
    assert found is not None
    assert not found.refused
    return found.defined


def test_each_series_of_the_engine_and_the_node_has_one_row() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert NAME.fullmatch(metric.name)
        assert metric.metadata.unit or metric.metadata.kind == "number"
        assert metric.reduction
    names = [f"system/{owner}7/{what}" for owner, what in SYSTEM_SERIES]
    assert {("rank", row.use_metric) for row in DEVICES.values()} <= SYSTEM_SERIES.keys()
    assert all(metadata_of(name).unit and metadata_of(name).axis == "time" for name in names)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("train/loss", Metadata("", "number", "lower")),
        ("time/step_seconds", Metadata("s", "seconds", "lower", (0, None))),
        ("throughput/mfu", Metadata("", "number", "higher", (0, 1))),
        ("system/rank12/rss_bytes", Metadata("bytes", "bytes", "none", (0, None), "time")),
        ("system/node0/cpu_percent", Metadata("%", "percent", "none", (0, 100), "time")),
        ("system/rank0/new_of_a_later_agent", Metadata(axis="time")),
        # The words of a name give nothing.
        ("val/loss", Metadata()),
        ("accuracy", Metadata()),
        ("queue_bytes", Metadata()),
        ("reward_percent", Metadata()),
    ],
)
def test_metadata_is_of_the_table_alone(name: str, expected: Metadata) -> None:
    assert metadata_of(name) == expected


def test_a_definition_gives_its_fields_and_the_table_the_others() -> None:
    fields = {"unit": "nats", "group": "validation", "domain": [0, None]}
    defined = _defined(_line(**{"train/loss": fields, "heap": {"kind": "bytes"}}))
    assert metadata_of("train/loss", defined["train/loss"]) == Metadata(
        "nats", "number", "lower", (0.0, None)
    )
    assert metadata_of("heap", defined["heap"]) == Metadata("bytes", "bytes")
    none = _defined(_line(**{"train/loss": {"direction": "none", "unit": ""}}))
    assert metadata_of("train/loss", none["train/loss"]) == Metadata("", "number", "none")


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ({"colour": "red"}, 'unknown field "colour"; expected unit, kind, direction, group'),
        ({"direction": "down"}, "direction: Input should be 'lower', 'higher' or 'none', got"),
        ({"unit": 5}, "unit: Input should be a valid string, got 5"),
        ({"unit": "x" * 1000}, "unit: String should have at most 24 characters"),
        ({"unit": "a\u0007b"}, "unit: expected printable characters without spaces"),
        ({"unit": "\u202egnp"}, "unit: expected printable characters"),
        ({"group": ""}, "group: String should have at least 1 character"),
        ({"axis": ["time"]}, "axis: Input should be 'step' or 'time'"),
        ({"domain": [1, 0]}, "domain: expected the smaller bound first"),
        ({"domain": [0]}, "domain: Field required"),
        ({"domain": [0, "1"]}, "domain: Input should be a valid number"),
        ({"domain": [True, None]}, "domain: Input should be a valid number"),
        ("lower", 'expected an object such as {"unit": "nats"}, got "lower"'),
        (None, "expected an object"),
    ],
)
def test_a_bad_definition_is_refused_alone_with_its_reason(definition: object, reason: str) -> None:
    found = definitions_in(_line(**{"a": definition, "b": {"direction": "higher"}}))
    assert found is not None
    assert found.defined == {"b": SeriesDefinition(direction="higher")}
    assert found.refused["a"].startswith(reason)


@pytest.mark.parametrize("name", ["a\nb", "a\u0000", "", "x" * 201, "é", "system/rank0/x"])
def test_a_name_that_no_job_can_write_is_refused(name: str) -> None:
    found = definitions_in(_line(**{name: {"unit": "s"}}))
    assert found is not None
    assert not found.defined
    assert list(found.refused) == [name]


@pytest.mark.parametrize(
    "document",
    [
        {"step": 1, "values": {"define": 1.0}},
        {"step": 1, "define": 0.5},
        {"define": True},
        {"loss": 1.0},
        ["define"],
    ],
)
def test_other_lines_are_no_definitions(document: object) -> None:
    assert definitions_in(json.dumps(document).encode()) is None


@pytest.mark.parametrize(
    "document", [{"define": "loss"}, {"define": []}, {"define": {}, "loss": 1}, {"define": None}]
)
def test_a_line_with_define_is_refused_if_it_is_no_definition(document: object) -> None:
    with pytest.raises(ValueError, match="define"):
        definitions_in(json.dumps(document).encode())


@given(st.binary(max_size=40) | st.text(max_size=40).map(lambda text: text.encode()))
def test_no_line_makes_reading_fail_in_another_way(rest: bytes) -> None:
    for line in (rest, b'{"define": {' + rest, b'{"define": {"a": {"domain": ' + rest + b"}}}"):
        with suppress(ValueError):
            definitions_in(line)


def test_ten_thousand_names_in_a_line_are_read_and_bounded_later() -> None:
    line = _line(**{f"m{number}": {"direction": "lower"} for number in range(10_000)})
    assert len(_defined(line)) == 10_000
    assert looks_defining(line)
    assert not looks_defining(b'{"step": 1, "define": 0.5}')


def _groups(names: list[str], **definitions: SeriesDefinition) -> list[tuple[str, list[str]]]:
    random.Random(len(names)).shuffle(names)
    found: list[tuple[str, list[str]]] = []
    for series in described(names, definitions):
        if not found or found[-1][0] != series.group:
            found.append((series.group, []))
        found[-1][1].append(series.name)
    return found


def test_groups_are_prefixes_the_training_first_and_the_machine_last() -> None:
    names = [
        *("system/rank10/cpu_percent", "system/rank2/cpu_percent", "time/step_seconds"),
        *("debug/x", "accuracy", "train/grad_norm", "train/aux_loss", "train/loss", "eval/loss"),
    ]
    assert _groups(names) == [
        ("train", ["train/loss", "train/grad_norm", "train/aux_loss"]),
        ("eval", ["eval/loss"]),
        ("debug", ["debug/x"]),
        ("metrics", ["accuracy"]),
        ("time", ["time/step_seconds"]),
        ("system", ["system/rank2/cpu_percent", "system/rank10/cpu_percent"]),
    ]


def test_prefixes_that_differ_in_a_number_only_are_one_group() -> None:
    layers = [f"layer.{layer}/{what}" for layer in range(100) for what in ("grad", "norm")]
    names = ["val/loss", "actor/loss", "critic_2/loss", "v2/x", "7/y", *layers]
    found = _groups(names)
    assert [(name, len(series)) for name, series in found] == [
        ("7", 1),
        ("actor", 1),
        ("critic_2", 1),
        ("layer", 200),
        ("v2", 1),
        ("val", 1),
    ]
    assert found[3][1][:3] == ["layer.0/grad", "layer.0/norm", "layer.1/grad"]


def test_a_defined_group_and_direction_come_first() -> None:
    better = SeriesDefinition(direction="higher", group="quality")
    assert _groups(["a/x", "b/y", "accuracy"], accuracy=better) == [
        ("quality", ["accuracy"]),
        ("a", ["a/x"]),
        ("b", ["b/y"]),
    ]


@pytest.mark.parametrize(
    ("names", "defined", "expected"),
    [
        (["throughput/mfu", "train/lr", "train/loss", "eval/loss"], [], "train/loss"),
        (["lr", "accuracy", "loss"], ["loss"], "loss"),
        (["lr", "accuracy", "loss"], [], "accuracy"),
        (["time/step_seconds", "memory/peak_bytes"], [], None),
        ([], [], None),
    ],
)
def test_the_main_series_has_a_direction_if_any_has(
    names: list[str], defined: list[str], expected: str | None
) -> None:
    definitions = dict.fromkeys(defined, SeriesDefinition(direction="lower"))
    assert main_series(names, definitions) == expected


def test_series_of_the_machine_are_those_of_its_groups() -> None:
    assert of_the_machine("system/node0/cpu_percent")
    assert of_the_machine("time/step_seconds")
    assert not of_the_machine("timed/loss")
    assert not of_the_machine("time")


def test_limits_leave_room_for_the_name_and_the_text() -> None:
    widest = SeriesDefinition(
        unit="u" * limits.SERIES_UNIT_CHARS_MAX,
        kind="percent",
        direction="higher",
        group="g" * limits.SERIES_GROUP_CHARS_MAX,
        axis="time",
        domain=(-1.7e308, 1.7e308),
    )
    assert len(widest.model_dump_json()) < 300


def test_several_jobs_have_each_series_once_in_the_order_of_one() -> None:
    lower = SeriesDefinition(direction="lower", unit="nats")
    higher = SeriesDefinition(direction="higher", group="quality")
    jobs = [
        (("b", "train/loss", "x/1"), {"b": lower}),
        (("train/loss", "b", "a"), {"b": lower, "a": higher, "only defined": lower}),
        (("a", "x/1", "system/cpu"), {"x/1": higher}),
    ]
    found = described_together(jobs)
    names = {name for some, _ in jobs for name in some}
    assert [each.name for each in found] == [
        each.name for each in described(names, {"a": higher, "b": lower, "x/1": higher})
    ]
    by_name = {each.name: each for each in found}
    assert by_name["b"].metadata[:3] == ("nats", "number", "lower")
    # One of the jobs has no direction for it.
    assert (by_name["a"].group, by_name["a"].metadata.direction) == ("quality", "none")
    assert by_name["x/1"].metadata.direction == "none"
    assert described_together([]) == []
