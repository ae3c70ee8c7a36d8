"""Rounds of kept files with real databases, a real store and a real folder; no agent."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lockstep.domain.life.attempt import AssignmentFile
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.spec.reading import read_spec
from lockstep.storage.attempts import events, kept_files
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.attempts.kept_files import KeptSet, Round
from lockstep.storage.db.database import Database
from lockstep.storage.objects.blobs import BlobStore
from lockstep.worker.folders import Folder
from lockstep.worker.upload.kept import restoring, rounds, scanning
from lockstep.worker.upload.kept.rounds import KeptFilesUploader
from lockstep.worker.upload.stream import Stream
from tests.harness.databases import Urls
from tests.storage import scenes

SCRIPT = {
    "kind": "script",
    "script": {"command": ["true"]},
    "train": None,
    "resources": {"gpus": 1},
}


class Job:
    """A running job with its folder, as an agent has it."""

    def __init__(self, database: Database, blobs: BlobStore, folder: Path, **spec: Any) -> None:
        self.database, self.blobs, self.top = database, blobs, folder
        self.document = {**SCRIPT, **spec}
        scenes.add_node(database)
        self.job_id = scenes.submit(database, **self.document)
        self.events: list[tuple[str, str]] = []
        self.now = 0.0
        self.monkeypatch = pytest.MonkeyPatch()
        self.begin()

    def begin(self, code: Callable[[Path], None] = lambda _code: None) -> None:
        """Start an attempt; ``code`` writes the unpacked code."""
        self.claim: Claim = scenes.start(self.database, self.job_id)
        self.folder = Folder(self.top / self.claim.assignment_id)
        self.folder.create()
        self.work = self.folder.file("code")
        self.work.mkdir()
        code(self.work)
        self.bring()
        self.restart()

    def bring(self) -> None:
        spec = read_spec(scenes.document(**self.document))
        restoring.bring(self.folder, self.claim, spec, self.database, self.blobs)

    def restart(self) -> None:
        """Begin as a new agent does."""
        claim = self.claim
        assignment = AssignmentFile.model_construct(
            spec=read_spec(scenes.document(**self.document)), node_rank=claim.node_rank
        )
        stream = Stream(claim.assignment_id, claim.job_id, claim.attempt_number, claim.token)
        self.files = KeptFilesUploader(
            self.database,
            self.blobs,
            self.folder,
            stream,
            assignment,
            report=lambda kind, message, _data: self.events.append((kind, message)),
            every_seconds=60,
            clock=lambda: self.now,
        )

    def end(self, reason: Reason = Reason.LOST) -> None:
        scenes.end(self.database, self.claim, reason)
        scenes.release(self.database, self.claim)

    def write(self, path: str, content: str | bytes = "x", *, age_seconds: float = 0.0) -> Path:
        target = self.work / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        return target

    def round(self, *, last: bool = False) -> None:
        self.now += 60
        while self.files.step(last):
            pass

    def rest(self) -> None:
        """Let all files be still. A change's time cannot be set."""
        self.monkeypatch.setattr(rounds, "STILL_SECONDS", 0.0)

    @property
    def kept(self) -> dict[str, bytes]:
        """Path and contents of what is kept."""
        with self.database.read_jobs() as session:
            found = kept_files.of_job(session, self.job_id)
        return {each.name: self.blobs.read(each.file.location) for each in found}

    @property
    def restored(self) -> str:
        """Message of the event of the last restore."""
        with self.database.read_jobs() as session:
            found = events.page(session, self.job_id, order="newest", limit=9)
        return next(each.message for each in found if each.kind == "files_restored")

    def set_back(self, backup: KeptSet) -> None:
        """Set the rows back, as a restore of the database does."""
        with self.database.jobs() as session:
            kept_files.remove_all(session, self.job_id)
            claim = self.claim
            changes = Round(0, [*backup.files.values()], [], complete=False, age_seconds=0.0)
            kept_files.publish(session, claim.assignment_id, claim.token, changes)

    @property
    def stored(self) -> list[str]:
        """Keys of contents in the store."""
        found = self.blobs.find(f"files/{self.job_id}")
        return [key for key in found if not key.endswith("/index.json")]


@pytest.fixture
def database(sqlite_urls: Urls) -> Iterator[Database]:
    """SQLite alone: tests/storage/test_kept_files.py has the rows on both databases."""
    opened = Database(*sqlite_urls)
    yield opened
    opened.close()


@pytest.fixture
def job(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    made = Job(database, BlobStore(str(tmp_path / "store")), tmp_path)
    made.monkeypatch = monkeypatch
    made.rest()
    return made


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


def test_the_next_attempt_has_the_files_with_their_times_and_modes(job: Job) -> None:
    job.write("out/ckpt.pt", "weights")
    os.utime(job.write("run.sh", "#!/bin/sh"), (1_000, 2_000))
    (job.work / "run.sh").chmod(0o755)
    job.round(last=True)
    job.end()
    job.begin(lambda work: (work / "run.sh").write_text("of the code"))
    assert (job.work / "out/ckpt.pt").read_text() == "weights"
    found = job.work / "run.sh"
    assert (found.read_text(), found.stat().st_mtime) == ("#!/bin/sh", 2_000)
    assert os.access(found, os.X_OK)
    before = job.stored
    job.round()
    assert job.stored == before, "nothing is new"
    with job.database.read_jobs() as session:
        attempts = {each.name: each.file.attempt for each in kept_files.of_job(session, job.job_id)}
    assert attempts == {"out/ckpt.pt": 1, "run.sh": 1}
    (job.work / "out/ckpt.pt").unlink()
    job.round()
    assert [*job.kept] == ["run.sh"], "as on a shared disk"
    assert len(job.stored) == 1


def test_without_restore_the_files_of_before_stay_in_the_list(
    database: Database, tmp_path: Path
) -> None:
    job = Job(database, BlobStore(str(tmp_path / "store")), tmp_path, outputs={"restore": False})
    job.write("a", "1")
    job.write("b", "1")
    job.round(last=True)
    job.end()
    job.begin()
    assert [path.name for path in job.work.iterdir()] == ["output"]
    job.write("b", "2")
    job.round(last=True)
    assert job.kept == {"a": b"1", "b": b"2"}


def test_a_file_that_moves_waits_and_holds_back_those_changed_after_it(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "STILL_SECONDS", 0.3)
    job.write("first")
    time.sleep(0.35)
    job.write("moving")
    job.write("later")
    job.round()
    assert [*job.kept] == ["first"]
    time.sleep(0.35)
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


def test_a_file_that_is_overwritten_during_a_round_is_never_torn(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer fills the whole file with one letter, in place, all the time."""
    monkeypatch.setattr(rounds, "UNSENT_SECONDS", 0.0)
    monkeypatch.setattr(rounds, "STILL_SECONDS", 1e9)
    size, over = 4_000_000, threading.Event()
    path = job.write("a", b"?" * size)

    def overwrite() -> None:
        with path.open("r+b", buffering=0) as file:
            for turn in range(10**9):
                if over.is_set():
                    return
                file.seek(0)
                file.write(bytes([65 + turn % 26]) * size)
                time.sleep(0.01)

    writer = threading.Thread(target=overwrite)
    writer.start()
    try:
        for _ in range(40):
            job.round()
            assert all(len(set(content)) == 1 for content in job.kept.values())
    finally:
        over.set()
        writer.join()
    job.round(last=True)
    assert [len(content) for content in job.kept.values()] == [size]


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
    assert job.kept == {"small": b"s" * 600_000}
    (first, second) = job.events
    assert first == second, "a new agent repeats it"
    assert first[0] == "files_skipped"
    assert first[1].startswith(
        "7 names are not kept: line\\nbreak (a name with control characters), link (a symbolic link), "
    )
    assert " and 2 more." in first[1]
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


def test_a_death_before_the_commit_leaves_the_round_before(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.write("a", "old")
    job.round()
    job.write("a", "new")
    job.write("b", "new")

    class KilledError(Exception):
        pass

    def die(*_: object) -> None:
        raise KilledError

    monkeypatch.setattr(kept_files, "publish", die)
    with suppress(KilledError):
        job.round()
    assert job.kept == {"a": b"old"}
    assert len(job.stored) == 3, "copies without a row"
    monkeypatch.undo()
    job.rest()
    job.end()
    job.begin()
    assert (job.work / "a").read_text() == "old"
    assert len(job.stored) == 1, "the next attempt has deleted them"


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


def test_a_new_agent_and_a_restored_database_agree_with_the_folder(job: Job) -> None:
    job.write("a", "1")
    job.write("b", "1")
    job.round()
    with job.database.read_jobs() as session:
        backup = kept_files.read(session, job.job_id, 0)
    job.write("a", "2")
    (job.work / "b").unlink()
    job.write("c", "2")
    job.round()
    now = job.kept
    assert now == {"a": b"2", "c": b"2"}
    stored = job.stored
    job.restart()
    job.round()
    assert (job.kept, job.stored) == (now, stored), "a new agent reads its notes"
    job.set_back(backup)
    job.round()
    assert job.kept == now
    job.restart()
    job.set_back(backup)
    job.round(last=True)
    assert job.kept == now
    assert len(job.stored) == 1


def test_rows_of_an_old_backup_are_restored_from_the_store(job: Job) -> None:
    """The job has ended since the backup, and nothing of its node is left."""
    job.write("a", "1")
    job.round()
    with job.database.read_jobs() as session:
        backup = kept_files.read(session, job.job_id, 0)
    job.write("a", "2")
    job.write("b", "2")
    job.round()
    job.round(last=True)
    job.set_back(backup)
    job.end()
    job.begin()
    assert [(job.work / name).read_text() for name in ("a", "b")] == ["2", "2"]
    job.write("b", "3")
    job.round(last=True)
    assert job.kept == {"a": b"2", "b": b"3"}
    job.end()
    job.begin()
    assert (job.work / "b").read_text() == "3"


def test_an_attempt_needs_a_store_that_has_its_files(job: Job) -> None:
    job.write("a")
    job.round(last=True)
    job.end()
    (job.top / "store").rename(job.top / "not-mounted")
    with pytest.raises(FileNotFoundError, match="the store has none of the job's 1 file"):
        job.begin()
    (job.top / "not-mounted").rename(job.top / "store")
    job.bring()
    assert (job.work / "a").read_text() == "x"


def test_contents_that_the_store_lost_are_named_and_leave_the_list(job: Job) -> None:
    for name in ("a", "b", "c"):
        job.write(name, name)
    job.round(last=True)
    with job.database.read_jobs() as session:
        rows = {each.name: each.file for each in kept_files.of_job(session, job.job_id)}
    job.blobs.delete_files([rows["a"].location])
    (job.top / "store" / rows["b"].location).chmod(0o600)
    (job.top / "store" / rows["b"].location).write_text("?")
    job.end()
    job.begin()
    assert sorted(path.name for path in job.work.iterdir()) == ["c", "output"]
    job.round()
    assert job.kept == {"c": b"c"}
    assert job.restored == "Restored 1 file (1.0 B). The store no longer has 2 files: a, b."


def test_the_event_says_how_old_the_files_of_a_lost_node_are(job: Job) -> None:
    job.write("a", b"x" * 2048)
    job.round()
    job.end()
    job.begin()
    assert job.restored == (
        "Restored 1 file (2.0 KiB) as they were 0 s before the end of attempt 1; what it wrote "
        "later was not stored."
    )
