"""Scalars in TensorBoard's event files: the format of a record, reading and writing.

A file is a sequence of TFRecords, each of them

====================  =================================================
8 bytes               length of the payload, little-endian
4 bytes               masked CRC-32C of these eight
length                the payload: one ``Event`` as a protocol buffer
4 bytes               masked CRC-32C of the payload
====================  =================================================

These fields of an ``Event`` are used: ``wall_time`` (1, double), ``step`` (2, int64),
``summary.value`` (5, 1) with ``tag`` (1), ``simple_value`` (2, float), ``tensor`` (8) and its
plug-in (9, 1, 1). PyTorch and TensorFlow 1 write ``simple_value``; TensorFlow 2 writes a tensor of
one number for the plug-in ``scalars``. Everything else (images, graphs, histograms,
hyperparameters) is skipped. The layout is that of tensorflow/core/util/event.proto,
framework/summary.proto, framework/tensor.proto and lib/io/record_writer.h.

Not here: the list of files, and the offset of each (``worker.upload.tensorboard``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

HEADER_BYTES: Final = 12
FOOTER_BYTES: Final = 4
RECORD_BYTES_MAX: Final = 64 * 1024
"""A longer payload holds an image, a graph or a histogram, and is passed over unread: a scalar's is
some fifty bytes."""
_FILE_VERSION: Final = b"brain.Event:2"
_VARINT_BYTES_MAX: Final = 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Wire types."""
_DT_FLOAT, _DT_DOUBLE = 1, 2
_FLOATS, _DOUBLES = 5, 6
"""Fields of a tensor that list its values, packed or one by one."""
_LISTS: Final = {
    (_FLOATS, _BYTES),
    (_FLOATS, _FIXED32),
    (_DOUBLES, _BYTES),
    (_DOUBLES, _FIXED64),
}
_VALUES: Final = {_DT_FLOAT: (_FLOATS, "<f"), _DT_DOUBLE: (_DOUBLES, "<d")}
"""List and format of a tensor's values, by its type."""


class MalformedEventsError(ValueError):
    """Bytes that are no event file. The message gives the reason."""


class Scalar(NamedTuple):
    """One number of one event."""

    step: int
    time: float
    """Seconds since the epoch."""
    tag: str
    value: float


class Split(NamedTuple):
    """The whole records at the beginning of some bytes."""

    payloads: list[bytes]
    end: int
    """Bytes that they take."""
    beyond: int | None = None
    """Bytes that the record behind them takes in all, where it is too long to be read."""
    damage: str = ""
    """Damage of the record behind them; empty if there is none, or it is incomplete."""


def split(data: bytes) -> Split:
    """Take bytes apart, up to a record that is not whole, too long or damaged."""
    payloads: list[bytes] = []
    offset = 0
    while len(data) - offset >= HEADER_BYTES:
        length, length_crc = struct.unpack_from("<QI", data, offset)
        if masked_crc(data[offset : offset + 8]) != length_crc:
            return Split(payloads, offset, damage="the checksum of a record's length is wrong")
        whole = HEADER_BYTES + length + FOOTER_BYTES
        if length > RECORD_BYTES_MAX:
            return Split(payloads, offset, beyond=whole)
        if len(data) - offset < whole:
            break
        payload = data[offset + HEADER_BYTES : offset + HEADER_BYTES + length]
        (crc,) = struct.unpack_from("<I", data, offset + HEADER_BYTES + length)
        if masked_crc(payload) != crc:
            return Split(payloads, offset, damage="the checksum of a record is wrong")
        payloads.append(payload)
        offset += whole
    return Split(payloads, offset)


def scalars(payload: bytes) -> list[Scalar]:
    """The numbers in one event; none in most events that are not for scalars.

    Raises
    ------
    MalformedEventsError
        If it is no event.
    """
    step, time = 0, 0.0
    found: list[tuple[str, float]] = []
    for field, wire, value in _fields(payload):
        if field == 1 and wire == _FIXED64:
            (time,) = struct.unpack("<d", value)
        elif field == 2 and wire == _VARINT:
            step = _signed(value)
        elif field == 5 and wire == _BYTES:
            for number, kind, part in _fields(value):
                if number == 1 and kind == _BYTES and (scalar := _scalar(part)) is not None:
                    found.append(scalar)
    return [Scalar(step, time, tag, value) for tag, value in found]


def _scalar(part: bytes) -> tuple[str, float] | None:
    """Tag and number of a ``Summary.Value``; None if it holds something else."""
    tag, plugin = "", b""
    number: float | None = None
    for field, wire, value in _fields(part):
        if field == 1 and wire == _BYTES:
            tag = value.decode(errors="replace")
        elif field == 2 and wire == _FIXED32:
            (number,) = struct.unpack("<f", value)
        elif field == 8 and wire == _BYTES:
            number = _one_number(value)
        elif field == 9 and wire == _BYTES:
            plugin = _inside(_inside(value, 1), 1)
    return None if number is None or not tag or plugin not in {b"", b"scalars"} else (tag, number)


def _one_number(tensor: bytes) -> float | None:
    """The value of a tensor of one float or double; None for any other."""
    kind, size, content = 0, 1, b""
    listed = {_FLOATS: b"", _DOUBLES: b""}
    for field, wire, value in _fields(tensor):
        if field == 1 and wire == _VARINT:
            kind = _signed(value)
        elif field == 2 and wire == _BYTES:
            size *= _elements(value)
        elif field == 4 and wire == _BYTES:
            content = value
        elif (field, wire) in _LISTS:
            listed[field] += value
    if size != 1 or kind not in _VALUES:
        return None
    field, form = _VALUES[kind]
    raw = content or listed[field]
    return float(struct.unpack(form, raw)[0]) if len(raw) == struct.calcsize(form) else None


def _elements(shape: bytes) -> int:
    """Return the number of elements of a tensor of this shape."""
    count = 1
    for _number, _wire, dimension in _fields(shape):
        lengths = [_signed(length) for number, _, length in _fields(dimension) if number == 1]
        count *= lengths[-1] if lengths else 0
    return count


def _inside(message: bytes, wanted: int) -> bytes:
    """The last field of this number that holds bytes; empty if there is none."""
    return next(
        (
            value
            for field, wire, value in reversed(list(_fields(message)))
            if (field, wire) == (wanted, 2)
        ),
        b"",
    )


def _fields(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Number, wire type and bytes of each field.

    A varint's bytes are its value as eight bytes, little-endian.
    """
    offset, end = 0, len(message)
    while offset < end:
        key, offset = _varint(message, offset)
        field, wire = key >> 3, key & 7
        if wire == _VARINT:
            number, offset = _varint(message, offset)
            yield field, wire, struct.pack("<Q", number)
            continue
        if wire == _BYTES:
            size, offset = _varint(message, offset)
        elif wire in {_FIXED64, _FIXED32}:
            size = 8 if wire == _FIXED64 else 4
        else:
            raise MalformedEventsError(f"a record is not an event: a field has wire type {wire}")
        if size > end - offset:
            raise MalformedEventsError("a record is not an event: a field exceeds the record")
        yield field, wire, message[offset : offset + size]
        offset += size


def _varint(message: bytes, offset: int) -> tuple[int, int]:
    number = 0
    for shift, byte in enumerate(message[offset : offset + _VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, offset + shift + 1
    raise MalformedEventsError("a record is not an event: a number is not terminated")


def _signed(value: bytes) -> int:
    return int(struct.unpack("<q", value)[0])


# --- writing
# --------------------------------------------------------------------------------------------------


def writer_record(data: bytes) -> bytes:
    """Return the record with which a writer begins its file; empty without a whole one."""
    first = split(data).payloads[:1]
    if not first or _FILE_VERSION not in first[0]:
        return b""
    return data[: HEADER_BYTES + len(first[0]) + FOOTER_BYTES]


def header(time: float) -> bytes:
    """The record with which an event file begins."""
    return _record(_double(1, time) + _bytes(3, _FILE_VERSION))


def record(step: int, time: float, values: Mapping[str, float]) -> bytes:
    """Return one event with its scalars, as 32-bit floats (about seven digits)."""
    parts = [
        _bytes(1, _bytes(1, tag.encode()) + b"\x15" + _float(value))
        for tag, value in values.items()
    ]
    return _record(_double(1, time) + b"\x10" + _to_varint(step) + _bytes(5, b"".join(parts)))


def _record(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    crcs = struct.pack("<I", masked_crc(length)), struct.pack("<I", masked_crc(payload))
    return length + crcs[0] + payload + crcs[1]


def _float(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def _double(field: int, value: float) -> bytes:
    return _to_varint(field << 3 | _FIXED64) + struct.pack("<d", value)


def _bytes(field: int, value: bytes) -> bytes:
    return _to_varint(field << 3 | _BYTES) + _to_varint(len(value)) + value


def _to_varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


# --- checksums
# --------------------------------------------------------------------------------------------------


def _table() -> Sequence[int]:
    """CRC-32C (Castagnoli), one byte at a time; the polynomial is 0x1EDC6F41, reflected."""
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_CRC_TABLE: Final = _table()


def masked_crc(data: bytes) -> int:
    """CRC-32C, rotated and shifted as TFRecords do it.

    The CRC of bytes that hold a CRC would be weak.
    """
    table, crc = _CRC_TABLE, 0xFFFF_FFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFF_FFFF
    return ((crc >> 15 | crc << 17) + 0xA282_EAD8) & 0xFFFF_FFFF
