"""Reads of whole lines of a growing file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.worker.upload.files.lines import Lines, whole_lines
from tests.harness.builders import as_untrusted


def _texts(path: Path, offset: int = 0, **options: object) -> list[bytes]:
    return [line.text for line in whole_lines(*as_untrusted(path), offset, **options).lines]  # type: ignore[arg-type]


def test_a_line_without_its_newline_is_left_for_later(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    path.write_bytes(b"one\ntwo\nthr")
    found = whole_lines(*as_untrusted(path), 0)
    assert [line.text for line in found.lines] == [b"one", b"two"]
    path.write_bytes(b"one\ntwo\nthree\n")
    assert _texts(path, found.offset) == [b"three"]


def test_a_line_without_newline_counts_after_the_end_of_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    path.write_bytes(b"one\ntwo")
    found = whole_lines(*as_untrusted(path), 0, last=True)
    assert [line.text for line in found.lines] == [b"one", b"two"]
    assert whole_lines(*as_untrusted(path), found.offset, last=True).lines == []


def test_a_file_that_is_not_there_yet_has_no_lines(tmp_path: Path) -> None:
    found = whole_lines(*as_untrusted(tmp_path / "absent"), 7)
    assert (found.lines, found.offset) == ([], 7)


def test_batches_of_any_size_give_the_same_lines_at_equal_offsets(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    content = b"".join(b"%d " % number + b"x" * (number % 37) + b"\n" for number in range(200))
    path.write_bytes(content)
    whole = whole_lines(*as_untrusted(path), 0, batch_bytes=10**6).lines
    for batch_bytes in (50, 64, 1000):
        offset, lines = 0, []
        while True:
            found = whole_lines(*as_untrusted(path), offset, batch_bytes=batch_bytes)
            if found.offset == offset:
                break
            lines += found.lines
            offset = found.offset
        assert lines == whole
        assert offset == len(content)
    assert all(content[line.offset :].startswith(line.text) for line in whole)


def test_a_line_longer_than_a_batch_is_named_and_skipped(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    path.write_bytes(b"short\n" + b"y" * 500 + b"\nafter\n")
    first = whole_lines(*as_untrusted(path), 0, batch_bytes=100)
    second = whole_lines(*as_untrusted(path), first.offset, batch_bytes=100)
    assert [line.text for line in first.lines] == [b"short"]
    assert second.too_long == 6
    assert second.offset > first.offset


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    path.write_bytes("a\x0cb\u2028c\rd\n".encode())
    assert _texts(path) == ["a\x0cb\u2028c\rd".encode()]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_path_that_is_no_file_has_no_lines_and_never_blocks(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "spool")
    assert whole_lines(*as_untrusted(tmp_path / "spool"), 0, last=True) == Lines([], 0)
