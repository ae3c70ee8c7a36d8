"""The spool on a full disk: lines wait in memory and arrive whole, once and in order."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from lockstep.engine.runtime import spool as module
from lockstep.engine.runtime.spool import Spool


class Disk:
    """``os.write`` with limited space."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = 10**9
        self._write = os.write
        monkeypatch.setattr(module.os, "write", self.write)
        monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)

    def write(self, file: int, content: bytes) -> int:
        if self.free == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._write(file, content[: self.free])
        self.free -= written
        return written


def test_lines_wait_for_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, path = Disk(monkeypatch), tmp_path / "spool" / "metrics.jsonl"
    spool = Spool(path)
    spool.write("first")
    disk.free = 3
    for line in ("second", "third", "fourth"):
        spool.write(line)
    assert path.read_text() == "first\nsec"
    disk.free = 6
    spool.write("fifth")
    assert path.read_text() == "first\nsecond\nth"
    disk.free = 10**9
    spool.close()
    assert path.read_text() == "first\nsecond\nthird\nfourth\nfifth\n"


def test_the_oldest_whole_lines_are_dropped_beyond_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAITING_BYTES_MAX", 30)
    disk, path = Disk(monkeypatch), tmp_path / "metrics.jsonl"
    spool = Spool(path)
    disk.free = 3
    for number in range(10):
        spool.write(f"line {number}")
    disk.free = 10**9
    spool.close()
    lines = path.read_text().splitlines()
    assert lines[0] == "line 0", "the line that was begun is completed"
    assert lines[1:] == [f"line {number}" for number in range(10 - len(lines) + 1, 10)]
    assert 2 < len(lines) < 6


def test_another_error_of_the_disk_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path / "metrics.jsonl")

    def broken(_file: int, _content: bytes) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(module.os, "write", broken)
    with pytest.raises(OSError, match="Input/output error"):
        spool.write("x")
