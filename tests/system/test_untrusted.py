"""Hostile files of every kind, at the names that a program of the service reads and writes."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import BaseModel

from lockstep.system.beneath import KernelCalls, UnsafeFileError
from lockstep.system.entries import entry_of
from lockstep.system.untrusted import Untrusted


class Model(BaseModel):
    values: dict[str, object]


@pytest.fixture(params=["kernel", "part_by_part"])
def files(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Untrusted:
    monkeypatch.setattr(KernelCalls, "has_openat2", request.param == "kernel")
    (tmp_path / "secret").write_text("secret")
    job = tmp_path / "job"
    (job / "a").mkdir(parents=True)
    (job / "a/file").write_text("content")
    return Untrusted(job)


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket has at most 107 bytes
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


def _device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root can make a device")


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "fifo": (os.mkfifo, "not_regular"),
    "socket": (_socket, "not_regular"),
    "device": (_device, "not_regular"),
    "folder": (Path.mkdir, "not_regular"),
    "link to a file outside": (lambda path: path.symlink_to("../../secret"), "link"),
    "link to a file inside": (lambda path: path.symlink_to("file"), "link"),
    "link to /proc": (lambda path: path.symlink_to("/proc/self/environ"), "link"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_only_a_regular_file_is_read_and_written(files: Untrusted, kind: str) -> None:
    make, why = HOSTILE[kind]
    make(files.path / "a/x")
    for act in (
        lambda: files.read("a/x", most=10),
        lambda: files.tail("a/x", most=10),
        lambda: files.append("a/x", b"more", most=100),
        lambda: files.descriptor("a/x", os.O_WRONLY),
        lambda: files.copy("a/x", files.path.parent / "copy", most=100),
        lambda: files.model("a/x", Model),
    ):
        with pytest.raises(UnsafeFileError) as refused:
            act()
        assert refused.value.why == why
    assert (files.size("a/x"), files.exists("a/x")) == (0, True)
    assert (files.path.parent / "secret").read_text() == "secret"
    files.write("a/x", b"ours")
    assert files.read("a/x", most=4) == b"ours"
    assert not (files.path / "a/x").is_symlink()


def test_a_pipe_with_a_reader_is_not_written(files: Untrusted) -> None:
    os.mkfifo(files.path / "pipe")
    reader = os.open(files.path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(UnsafeFileError, match="pipe is not a regular file"):
        files.append("pipe", b"line", most=100)
    os.close(reader)


@pytest.mark.parametrize(
    "name", ["../secret", "a/../a/file", "/etc/passwd", "a//file", ".", "", "a\0"]
)
def test_a_name_that_may_lead_out_is_an_error_of_the_caller(files: Untrusted, name: str) -> None:
    with pytest.raises((ValueError, UnsafeFileError)):
        files.read(name, most=10)
    with pytest.raises(ValueError, match="is not a name below a folder"):
        files.write(name, b"")


def test_a_link_in_the_middle_or_at_the_top_is_refused(files: Untrusted) -> None:
    (files.path / "link").symlink_to("a")
    (files.path.parent / "top").symlink_to("job")
    for each, name in ((files, "link/file"), (Untrusted(files.path.parent / "top"), "a/file")):
        with pytest.raises(OSError, match=r"link|Not a directory"):
            each.descriptor(name)
        with pytest.raises(OSError, match=r"link|Not a directory"):
            each.write(name, b"x")
        assert each.size(name) == 0
    with pytest.raises(UnsafeFileError, match="link"):
        files.make_folder("link")
    assert (files.path / "a/file").read_text() == "content"


def test_reads_have_a_bound_and_missing_files_have_no_content(files: Untrusted) -> None:
    assert files.read("a/file", most=7) == b"content"
    assert files.read("a/file", most=3, start=4) == b"ent"
    assert files.tail("a/file", most=3) == b"ent"
    with pytest.raises(UnsafeFileError, match="a/file is larger than it may be"):
        files.read("a/file", most=6)
    for name in ("none", "a/file/none", "none/none"):
        assert (files.read(name, most=1), files.tail(name, most=1), files.size(name)) == (
            None,
            b"",
            0,
        )
    assert Untrusted(files.path / "none").read("x", most=1) is None


def test_a_sparse_file_of_a_terabyte_is_read_up_to_the_bound(files: Untrusted) -> None:
    with (files.path / "sparse").open("wb") as file:
        file.truncate(2**40)
    for act in (
        lambda: files.read("sparse", most=2**20),
        lambda: files.copy("sparse", files.path / "copy", most=2**20),
        lambda: files.append("sparse", b"line", most=2**20),
    ):
        with pytest.raises(UnsafeFileError, match="sparse is larger"):
            act()
    assert files.tail("sparse", most=3) == b"\0\0\0"


def test_deep_json_is_damage(files: Untrusted) -> None:
    for depth, opened, closed in ((100_000, "[", "]"), (100_000, '{"a":', "}")):
        text = f'{{"values": {{"a": {opened * depth}1{closed * depth}}}}}'
        (files.path / "deep.json").write_text(text)
        with pytest.raises(ValueError, match=r"values|recursion|JSON"):
            files.model("deep.json", Model)
    files.write("deep.json", json.dumps({"values": {"a": [[1]]}}).encode())
    assert files.model("deep.json", Model) == Model(values={"a": [[1]]})


def test_lists_and_walks_have_a_bound_and_follow_nothing(files: Untrusted) -> None:
    (files.path / "a/link").symlink_to(files.path.parent)
    (files.path / "a/b").mkdir()
    os.mkfifo(files.path / "a/b/pipe")
    found = {(entry.name, entry.kind) for entry in files.names("a", most=3)}
    assert found == {("file", "file"), ("link", "link"), ("b", "folder")}
    with pytest.raises(UnsafeFileError, match="a has more entries"):
        files.names("a", most=2)
    assert files.names("none", most=1) == []
    walked = {entry.name: entry.kind for entry in files.walk("a", most=100)}
    assert walked == {"file": "file", "link": "link", "b": "folder", "b/pipe": "other"}
    assert len(list(files.walk("a", most=2))) == 2
    nested = files.path / "n"
    for _ in range(40):
        nested /= "n"
    nested.mkdir(parents=True)
    assert len(list(files.walk("n", most=100))) == 33


def test_a_file_is_appended_to_up_to_its_bound(files: Untrusted) -> None:
    files.append("log", b"12345", most=8)
    with pytest.raises(UnsafeFileError, match="larger"):
        files.append("log", b"6789", most=8)
    files.append("log", b"678", most=8)
    assert (files.path / "log").read_bytes() == b"12345678"
    assert stat.S_IMODE((files.path / "log").stat().st_mode) == 0o600


def test_a_copy_is_read_only_and_does_not_follow_later_changes(
    files: Untrusted, tmp_path: Path
) -> None:
    found = files.copy("a/file", tmp_path / "copy", most=7)
    with (files.path / "a/file").open("r+") as file:
        file.write("CHANGED")
    assert (tmp_path / "copy").read_text() == "content"
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o400
    assert found == (7, "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73")


def test_types_that_change_while_they_are_read_lead_nowhere(files: Untrusted) -> None:
    name, over = files.path / "a/x", threading.Event()

    def swap() -> None:
        makers = [make for make, _ in HOSTILE.values() if make not in {_device, _socket}]
        for number in itertools.count():
            aside = files.path / "aside"
            if number % 2:
                aside.write_text("content")
            else:
                makers[number // 2 % len(makers)](aside)
            if name.is_dir() and not name.is_symlink():
                name.rmdir()
            elif aside.is_dir() and not aside.is_symlink():
                name.unlink(missing_ok=True)
            aside.rename(name)
            if over.is_set():
                return

    thread = threading.Thread(target=swap)
    thread.start()
    seen, deadline = set(), time.monotonic() + 20
    while not {b"content", "link", "not_regular"} <= seen and time.monotonic() < deadline:
        try:
            seen.add(files.read("a/x", most=100))
        except UnsafeFileError as error:
            seen.add(error.why)
    over.set()
    thread.join()
    assert (
        {b"content", "link", "not_regular"}
        <= seen
        <= {b"content", b"", None, "link", "not_regular"}
    )


def test_a_folder_is_made_once_and_for_this_user(files: Untrusted) -> None:
    for _ in range(2):
        files.make_folder("made")
    assert stat.S_IMODE((files.path / "made").stat().st_mode) == 0o700
    with pytest.raises(OSError, match="directory"):
        files.make_folder("a/file")


def test_nothing_stays_open(files: Untrusted) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    for name in ("a/file", "none", "a"):
        for act in (files.status, lambda name: files.names(name, most=1), files.size):
            act(name)
        with contextlib.suppress(UnsafeFileError):
            files.read(name, most=1)
    assert files.names("a", most=9) == [entry_of("file", (files.path / "a/file").stat())]
    assert len([*Path("/proc/self/fd").iterdir()]) == before
