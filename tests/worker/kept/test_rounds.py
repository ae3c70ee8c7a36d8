"""Rounds of kept files: what is stored, when, and what is named instead."""

from __future__ import annotations

import os
import shutil
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lockstep.domain.life.outcomes import Reason
from lockstep.storage.attempts import kept_files
from lockstep.storage.db.database import Database
from lockstep.storage.objects import blobs
from lockstep.storage.objects.blobs import BlobStore
from lockstep.system.entries import FolderEntry
from lockstep.system.untrusted import Untrusted
from lockstep.worker.upload.kept import rounds, scanning
from tests.storage import scenes
from tests.worker.kept.job import Job


def test_what_is_new_or_changed_is_kept_and_the_code_is_not(job: Job) -> None:
    def code(work: Path) -> None:
        for name in ("train.py", "config.yaml", "old/data"):
            (work / name).parent.mkdir(exist_ok=True)
            (work / name).write_text("code")
        (work / "link").symlink_to("train.py")

    job.end()
    job.begin(code)
    job.write("config.yaml", "changed")
    job.write("out/a.pt", b"\0" * 3_000_000)
    job.write("output/empty", "")
    for never in ("__pycache__/a.pyc", ".git/HEAD", "out/.cache/x"):
        job.write(never)
    job.round()
    assert job.kept == {
        "config.yaml": b"changed",
        "out/a.pt": b"\0" * 3_000_000,
        "output/empty": b"",
    }
    assert job.events == []


def test_a_job_that_writes_nothing_asks_the_database_nothing(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a session was opened")

    for name in ("jobs", "read_jobs"):
        monkeypatch.setattr(job.database, name, refuse)
    job.round()
    job.round(last=True)


def test_a_file_that_moves_waits_and_holds_back_those_changed_after_it(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    still_ns, now = 2_000_000_000, [0]
    monkeypatch.setattr(rounds, "STILL_SECONDS", still_ns / 1e9)
    monkeypatch.setattr(time, "time_ns", lambda: now[0])
    first = job.write("first")
    time.sleep(0.05)  # The kernel's times have steps.
    job.write("moving")
    last = job.write("later")
    now[0] = first.stat().st_ctime_ns + still_ns
    job.round()
    assert [*job.kept] == ["first"]
    now[0] = last.stat().st_ctime_ns + still_ns
    job.round()
    assert [*job.kept] == ["first", "later", "moving"]


@pytest.mark.parametrize(("megabytes", "minutes"), [(0, 1), (11, 2), (23, 4), (70, 10)])
def test_a_file_that_never_rests_waits_longer_if_it_is_large(
    job: Job, monkeypatch: pytest.MonkeyPatch, megabytes: int, minutes: int
) -> None:
    monkeypatch.setattr(rounds, "STILL_SECONDS", 1e9)
    os.truncate(job.write("log"), megabytes * 10**6)
    for _ in range(minutes):
        job.round()
        assert job.kept == {}
        with (job.work / "log").open("ab") as file:
            file.write(b"end")
    job.round()
    assert len(job.kept["log"]) == megabytes * 10**6 + 3 * minutes


@pytest.mark.parametrize("still_seconds", [0.0, 1e9], ids=["still", "restless"])
def test_a_file_that_is_overwritten_while_it_is_copied_waits(
    job: Job, monkeypatch: pytest.MonkeyPatch, still_seconds: float
) -> None:
    """A writer is in the middle of the file at each copy, and ends before the second look at it."""
    monkeypatch.setattr(rounds, "UNSENT_SECONDS", 0.0)
    monkeypatch.setattr(rounds, "STILL_SECONDS", still_seconds)
    half = 1_000_000
    path, put_copy = job.write("a", b"?" * 2 * half), job.blobs.put_copy
    letters = iter(b"abcdef")

    def overwritten(*args: Any, **options: Any) -> tuple[int, str]:
        letter = bytes([next(letters)])
        time.sleep(0.02)  # The kernel's clock of changes has steps of a few milliseconds.
        with path.open("r+b", buffering=0) as file:
            file.write(letter * half)
            copied = put_copy(*args, **options)
            file.write(letter * half)
        return copied

    with monkeypatch.context() as patch:
        patch.setattr(job.blobs, "put_copy", overwritten)
        for _ in range(5):
            job.round()
            assert job.kept == {}
    assert next(letters) == ord(
        "f" if still_seconds == 0.0 else "e"
    )  # A restless one waits a round.
    job.round(last=True)
    assert job.kept == {"a": path.read_bytes()}


def test_other_types_and_what_is_too_much_are_named_once(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(database, BlobStore(str(tmp_path / "store")), tmp_path, outputs={"max_gb": 0.001})
    os.mkfifo(job.write("fifo").with_name("pipe"))
    (job.work / "fifo").unlink()
    (job.work / "link").symlink_to("/etc/passwd")
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(job.work)
        listening.bind("socket")
    job.write("small", b"s" * 600_000)
    os.truncate(job.write("sparse"), 10**12)
    job.write("x" * 200 + "/" + "y" * 200)
    (job.work / os.fsdecode(b"\xff")).write_text("x")
    (job.work / "line\nbreak").write_text("x")
    for _ in range(2):
        job.round(last=True)
        job.restart()
    assert job.kept == {"line\nbreak": b"x", "small": b"s" * 600_000}
    (first, second) = job.events
    assert first == second, "a new agent repeats it"
    assert first[0] == "files_skipped"
    assert first[1].startswith("6 names are not kept: link (a symbolic link), ")
    assert " and 1 more." in first[1]
    for part in ("pipe (not a regular file)", "sparse (931.3 GiB, beyond outputs.max_gb)"):
        assert part in first[1]


def test_beyond_the_number_of_files_the_oldest_stay(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds.limits, "KEPT_FILES_MAX", 3)
    for number in range(5):
        job.write(f"f{number}")
        time.sleep(0.01)
    job.round()
    assert [*job.kept] == ["f0", "f1", "f2"]
    assert job.events == [
        ("files_skipped", "2 names are not kept: f3 (beyond 3 files), f4 (beyond 3 files).")
    ]
    (job.work / "f0").unlink()
    job.round()
    assert [*job.kept] == ["f1", "f2", "f3"]


def test_files_leave_the_disk_of_the_store_its_reserve(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.write("a", b"a" * 1000)
    free = shutil.disk_usage(job.top).free
    monkeypatch.setattr(blobs, "FREE_BYTES_MIN", 2 * free)
    job.round()
    assert job.kept == {}
    message = "1 name is not kept: a (the disk of the store is nearly full)."
    assert job.events == [("files_skipped", message)]
    monkeypatch.setattr(blobs, "FREE_BYTES_MIN", 0)
    job.round()
    assert [*job.kept] == ["a"]


@pytest.mark.parametrize(("again", "kept"), [(0, ["a"]), (2**62, [])])
def test_the_last_round_waits_a_minute_for_room(
    job: Job, monkeypatch: pytest.MonkeyPatch, again: int, kept: list[str]
) -> None:
    job.write("a")
    monkeypatch.setattr(blobs, "FREE_BYTES_MIN", 2**62)
    with pytest.raises(OSError, match="the disk of the store is nearly full"):
        job.round(last=True)
    monkeypatch.setattr(blobs, "FREE_BYTES_MIN", again)
    job.round(last=True)
    assert [*job.kept] == kept


def test_a_folder_that_cannot_be_read_loses_nothing(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        job.write(f"deep/{number}")
        job.write(f"{number}")
    job.round()
    assert len(job.kept) == 6
    monkeypatch.setattr(scanning, "ENTRIES_MAX", 4)
    job.round()
    assert len(job.kept) == 6
    assert "beyond 4 names" in job.events[0][1]


def test_the_work_of_a_round_is_bounded_by_folders_too(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.write("a")
    job.round()
    for number in range(40):
        for inner in range(10):
            (job.work / f"z{number}/{inner}").mkdir(parents=True)
    listed: list[str] = []
    names = Untrusted.names

    def counted(files: Untrusted, folder: str = "", *, most: int) -> list[FolderEntry]:
        listed.append(folder)
        return names(files, folder, most=most)

    monkeypatch.setattr(scanning, "ENTRIES_MAX", 100)
    monkeypatch.setattr(Untrusted, "names", counted)
    job.round()
    assert len(listed) <= 102, "of 441"
    assert [*job.kept] == ["a"]


def test_patterns_select_what_is_kept(database: Database, tmp_path: Path) -> None:
    job = Job(
        database,
        BlobStore(str(tmp_path / "store")),
        tmp_path,
        outputs={"keep": ["out/", "*.pt", "!out/tmp/"]},
    )
    for path in ("out/a", "out/tmp/b", "deep/down/c.pt", "d.txt"):
        job.write(path)
    job.round(last=True)
    assert [*job.kept] == ["deep/down/c.pt", "out/a"]


def test_code_in_place_keeps_the_output_folder_alone(database: Database, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    job = Job(database, BlobStore(str(tmp_path / "store")), tmp_path, code={"path": str(shared)})
    job.work.joinpath("x").write_text("x")
    for attempt in (1, 2):
        (job.folder.path / "output" / f"of-{attempt}").write_text("x")
        job.round(last=True)
        job.end()
        if attempt == 1:
            job.begin()
            assert (job.folder.path / "output" / "of-1").exists()
    assert [*job.kept] == ["output/of-1", "output/of-2"]


def test_files_of_a_continued_job_replace_none_of_the_attempt(
    database: Database, tmp_path: Path
) -> None:
    """The code of the new job is used in place: beside it are the attempt's own files."""
    job = Job(database, BlobStore(str(tmp_path / "store")), tmp_path)
    job.write("result.json", "of a job")
    job.round(last=True)
    job.end(Reason.USER_ERROR)
    job.document |= {"continues": job.job_id, "code": {"path": str(tmp_path)}}
    job.job_id = scenes.submit(database, **job.document)
    job.begin()
    assert not job.folder.files.exists("result.json")
    assert job.folder.file("output/result.json").read_text() == "of a job"


def test_an_outage_copies_a_file_once(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.write("a", "content")
    publish = kept_files.publish

    def away(*_: object) -> None:
        raise OSError("the database is away")

    monkeypatch.setattr(kept_files, "publish", away)
    for _ in range(3):
        with suppress(OSError):
            job.round()
    monkeypatch.setattr(kept_files, "publish", publish)
    (before,) = job.stored
    job.round()
    assert job.stored == [before]
    assert job.kept == {"a": b"content"}


def test_a_folder_that_is_too_deep_is_named_where_nothing_else_is_kept(job: Job) -> None:
    (job.work / "/".join("d" * 40)).mkdir(parents=True)
    job.round()
    (event,) = job.events
    assert event[1].endswith("/d (too deep).")
    assert scanning.readable(os.fsdecode(b"bad\xff\n")) == "bad\\xff\\n"
