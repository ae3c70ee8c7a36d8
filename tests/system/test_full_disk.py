"""Files and logs on a full disk: ``/dev/full`` for streams, a small tmpfs for files.

Also the limit of a log line.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.system import beneath
from lockstep.system.log_stream import LINE_BYTES_MAX, LogStream
from lockstep.system.untrusted import Untrusted
from tests.harness import disks


def test_a_line_that_cannot_be_written_is_counted_and_reported_later(tmp_path: Path) -> None:
    log = tmp_path / "log"
    descriptor, full = os.open(log, os.O_WRONLY | os.O_CREAT), os.open("/dev/full", os.O_WRONLY)
    space = os.dup(descriptor)
    stream = LogStream(descriptor)
    stream.write("one\n")
    os.dup2(full, descriptor)
    stream.write("two\n")
    stream.write("three\n")
    os.dup2(space, descriptor)
    stream.write("four\n")
    assert log.read_text() == "one\n2 lines of this log could not be written\nfour\n"
    for each in (descriptor, full, space):
        os.close(each)
    stream.write("closed\n")  # raises nothing


@pytest.mark.parametrize("letter", ["x", "é"])
def test_a_cut_line_has_at_most_the_maximum_of_bytes_and_ends(tmp_path: Path, letter: str) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        stream = LogStream(file.fileno())
        stream.write(letter * (LINE_BYTES_MAX // len(letter.encode()) + 1) + "\n")
        stream.write("next\n")
    cut, following = log.read_bytes().splitlines()
    assert len(cut) == LINE_BYTES_MAX
    assert following == b"next"


PROGRAM = """
import logging, sys, threading, time
import structlog
from lockstep.system import logs
logs.configure(sys.argv[1], "stderr")
class Odd:
    def __repr__(self): raise RuntimeError("no repr")
done = []
def loop():
    for _ in range(3):
        structlog.get_logger("x").warning("trouble", error=repr(OSError(28)))
        structlog.get_logger("x").warning("odd", value=Odd())
        logging.getLogger("library").warning("from a library %d", "no number")
        print("printed", "lone surrogate \\ud800")
        try:
            raise ValueError
        except ValueError:
            structlog.get_logger("x").exception("with a trace")
        done.append(1)
thread = threading.Thread(target=loop); thread.start(); thread.join()
sys.exit(0 if len(done) == 3 else 1)
"""


@pytest.mark.parametrize("log_format", ["console", "json"])
@pytest.mark.parametrize("output", ["/dev/full", "closed pipe", "closed"])
def test_no_call_of_a_logger_raises(log_format: str, output: str) -> None:
    if output == "/dev/full":
        target = os.open(output, os.O_WRONLY)
    else:
        reader, target = os.pipe()
        os.close(reader)
    closing = ">&- 2>&-" if output == "closed" else ""
    done = subprocess.run(
        ["bash", "-c", f'exec "$@" {closing}', "-", sys.executable, "-c", PROGRAM, log_format],
        stdout=target,
        stderr=target,
        check=False,
    )
    os.close(target)
    assert done.returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return the folder of a file system of 64 KiB and 16 inodes."""
    with disks.small_disk(tmp_path / "disk", "size=64k,nr_inodes=16") as folder:
        yield folder


def use_up(disk: Path, lacks: str) -> None:
    """Leave no free space, or no free inode, on the small disk."""
    if lacks == "space":
        disks.fill(disk)
        return
    for number in range(16 - len(list(disk.iterdir())) - 1):  # one is the folder's own
        (disk / str(number)).touch()
    with pytest.raises(OSError, match="No space left"):
        (disk / "another").touch()


@pytest.mark.parametrize("lacks", ["space", "inodes"])
def test_a_reserved_file_is_written_on_a_full_disk(small_disk: Path, lacks: str) -> None:
    files, content = Untrusted(small_disk), bytes(range(256)) * 64
    files.reserve("result", len(content))
    files.reserve("empty", 0)
    use_up(small_disk, lacks)
    for name in ("result", "empty"):
        files.write(name, content if name == "result" else b"")
    assert (small_disk / "result").read_bytes() == content
    assert (small_disk / "empty").read_bytes() == b""
    present = {path.name for path in small_disk.iterdir()}
    with pytest.raises(OSError, match="No space left"):
        files.write("another", b"x")
    assert {path.name for path in small_disk.iterdir()} == present


@pytest.mark.parametrize("lacks", ["space", "inodes"])
@pytest.mark.parametrize("exchanges", [True, False])
def test_a_reserved_file_is_written_again_and_again_on_a_full_disk(
    small_disk: Path, lacks: str, exchanges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchanges:
        monkeypatch.setattr(beneath, "exchanged", lambda *_: False)
    fence, files = small_disk / "fence", Untrusted(small_disk)
    files.reserve("fence", 1024)
    files.write("fence", b"first, and longer")
    use_up(small_disk, lacks)
    for number in range(3):
        files.write("fence", b"%d" % number)
        assert fence.read_bytes() == b"%d" % number


def test_contents_beyond_the_reserve_leave_the_file_as_it_was(small_disk: Path) -> None:
    files = Untrusted(small_disk)
    files.reserve("fence", 1024)
    files.write("fence", b"first")
    use_up(small_disk, "space")
    with pytest.raises(OSError, match="No space left"):
        files.write("fence", bytes(8192))
    assert (small_disk / "fence").read_bytes() == b"first"
    files.write("fence", b"second")
    assert (small_disk / "fence").read_bytes() == b"second"


def test_a_spare_that_is_no_file_is_not_written(small_disk: Path) -> None:
    files = Untrusted(small_disk)
    files.write("fence", b"first")
    os.mkfifo(small_disk / ".fence.spare")
    use_up(small_disk, "space")
    with pytest.raises(OSError, match=r"spare|No such device"):
        files.write("fence", b"second")
    assert (small_disk / "fence").read_bytes() == b"first"
