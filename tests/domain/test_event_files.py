"""Format of TensorBoard's event files, tested against real writers and the real reader."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.domain.training import event_files
from lockstep.domain.training.event_files import (
    MalformedEventsError,
    Scalar,
    masked_crc,
    scalars,
    split,
)
from tests.harness.builders import tensorboard, value, write


def _single(value: float) -> float:
    """Return the value rounded to a 32-bit float."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def _all(data: bytes) -> list[Scalar]:
    found = split(data)
    assert (found.end, found.beyond, found.damage) == (len(data), None, "")
    return [scalar for payload in found.payloads for scalar in scalars(payload)]


def test_the_checksum_is_crc32c() -> None:
    # RFC 3720, B.4: 32 bytes of zeros, of ones, and ascending; masked as in TFRecords.
    for data, crc in (
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ):
        assert masked_crc(data) == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def test_files_of_the_real_writer_are_read_back(tmp_path: Path) -> None:
    values = [0.5, -1e-30, math.inf, -math.inf, math.nan, 3.25]
    histogram = tensorboard().Summary.Value(tag="weights")
    histogram.histo.bucket.extend([1.0, 2.0])
    rows = [
        (step * 1000, 1.7e9 + step, value(kind, number, kind))
        for step, number in enumerate(values)
        for kind in ("simple", "float", "double")
    ]
    found = _all(write(tmp_path, [*rows, (7, 1.0, histogram)]).read_bytes())
    assert {scalar.tag for scalar in found} == {"simple", "float", "double"}
    for kind in ("simple", "float", "double"):
        mine = [scalar for scalar in found if scalar.tag == kind]
        assert [scalar.step for scalar in mine] == [step * 1000 for step in range(6)]
        assert [scalar.time for scalar in mine] == [1.7e9 + step for step in range(6)]
        expected = [number if kind == "double" else _single(number) for number in values]
        assert repr([scalar.value for scalar in mine]) == repr(expected)


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**62),
            st.floats(0, 4e9),
            st.dictionaries(st.text(min_size=1), st.floats(width=32), max_size=3),
        ),
        max_size=5,
    )
)
def test_written_values_are_read_back(rows: list[tuple[int, float, dict[str, float]]]) -> None:
    rows = [
        (step, time, {tag: v for tag, v in values.items() if tag.encode(errors="ignore")})
        for step, time, values in rows
    ]
    data = event_files.header(1.5) + b"".join(event_files.record(*row) for row in rows)
    expected = [
        Scalar(step, time, tag, value)
        for step, time, values in rows
        for tag, value in values.items()
    ]
    assert repr(_all(data)) == repr(expected)


def test_the_real_reader_reads_written_files(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.lockstep"
    path.write_bytes(
        event_files.header(1.5)
        + event_files.record(0, 2.5, {"train/loss": 0.1, "größe": math.nan})
        + event_files.record(2**40, 3.5, {"train/loss": math.inf, "too large": 1e300})
    )
    first, second, third = tensorboard().Loader(str(path)).Load()
    assert (first.file_version, first.wall_time) == ("brain.Event:2", 1.5)
    assert [(event.step, event.wall_time) for event in (second, third)] == [(0, 2.5), (2**40, 3.5)]
    told = [
        {value.tag: value.simple_value for value in event.summary.value}
        for event in (second, third)
    ]
    assert repr(told) == repr(
        [
            {"train/loss": _single(0.1), "größe": math.nan},
            {"train/loss": math.inf, "too large": math.inf},
        ]
    )


@given(st.integers(0, 10**6))
def test_an_incomplete_record_is_read_later_at_any_length(cut: int) -> None:
    whole = [
        event_files.header(1.0),
        *(event_files.record(step, 1.0, {"loss": step / 2}) for step in range(4)),
    ]
    data = b"".join(whole)
    found = split(data[: cut % len(data)])
    ends = [len(b"".join(whole[:count])) for count in range(len(whole) + 1)]
    assert found.end == max(end for end in ends if end <= cut % len(data))
    assert not found.damage


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_no_changed_byte_is_ever_taken_for_a_number(place: int, change: int) -> None:
    data = bytearray(
        event_files.record(1, 1.0, {"loss": 0.5}) + event_files.record(2, 1.0, {"loss": 0.25})
    )
    place %= len(data)
    data[place] ^= change
    found = split(bytes(data))
    assert found.damage
    assert found.end == (0 if place < len(data) // 2 else len(data) // 2)


def test_a_record_with_an_image_in_it_is_passed_over_unread() -> None:
    before, after = (
        event_files.record(1, 1.0, {"loss": 0.5}),
        event_files.record(2, 1.0, {"loss": 0.25}),
    )
    length = struct.pack("<Q", event_files.RECORD_BYTES_MAX + 1)
    header = length + struct.pack("<I", masked_crc(length))
    found = split(before + header + b"image")
    assert (len(found.payloads), found.end) == (1, len(before))
    assert found.beyond == len(header) + event_files.RECORD_BYTES_MAX + 1 + 4
    assert found.damage == ""
    assert len(split(after).payloads) == 1


def test_only_tensors_of_one_number_for_scalars_are_numbers() -> None:
    real = tensorboard()

    def tensor(plugin: str, shape: list[int], **fields: Any) -> Any:
        made = real.Summary.Value(tag="x", tensor=real.Tensor(**fields))
        made.metadata.plugin_data.plugin_name = plugin
        for size in shape:
            made.tensor.tensor_shape.dim.add(size=size)
        return made

    def read(made: Any) -> list[float]:
        event = real.Event(wall_time=1.0, step=3)
        event.summary.value.append(made)
        return [scalar.value for scalar in scalars(event.SerializeToString())]

    assert read(tensor("scalars", [], dtype=1, float_val=[0.5])) == [0.5]
    assert read(tensor("scalars", [1], dtype=1, tensor_content=struct.pack("<f", 0.5))) == [0.5]
    assert read(tensor("scalars", [], dtype=2, double_val=[0.1])) == [0.1]
    assert read(tensor("", [], dtype=2, tensor_content=struct.pack("<d", 0.1))) == [0.1]
    assert read(tensor("scalars", [2], dtype=1, float_val=[0.5, 1.0])) == []
    assert read(tensor("hparams", [], dtype=1, float_val=[0.5])) == []
    assert read(tensor("scalars", [0], dtype=1)) == []
    assert read(tensor("scalars", [], dtype=7, string_val=[b"text"])) == []


def test_a_negative_step_stays_negative() -> None:
    real = tensorboard()
    event = real.Event(wall_time=1.0, step=-5)
    event.summary.value.append(real.Summary.Value(tag="x", simple_value=1.0))
    assert [scalar.step for scalar in scalars(event.SerializeToString())] == [-5]


@given(st.binary(max_size=60))
def test_invalid_bytes_are_refused_by_name_or_give_no_number(payload: bytes) -> None:
    try:
        found = scalars(payload)
    except MalformedEventsError as error:
        assert str(error).startswith("a record is not an event")  # noqa: PT017 - either may happen
    else:
        assert all(isinstance(scalar.value, float) for scalar in found)
