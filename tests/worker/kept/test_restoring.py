"""Kept files in the next attempt, also after deaths, losses and restores."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.domain.errors import LockstepError
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.rights import EVERY
from lockstep.storage.attempts import kept_files
from lockstep.storage.attempts.kept_files import KeptFile, KeptSet
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import AssignmentRow
from lockstep.storage.jobs import removal, stopping
from lockstep.storage.objects.blobs import BlobStore
from lockstep.worker.upload.kept import indexes
from tests.storage import scenes
from tests.worker.kept.job import Job


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


@pytest.mark.parametrize(("before", "after"), [("a", "a/b"), ("a/b", "a"), ("a/b/c", "a")])
def test_without_restore_a_file_replaces_a_folder_of_its_name_and_back(
    database: Database, tmp_path: Path, before: str, after: str
) -> None:
    job = Job(database, BlobStore(str(tmp_path / "store")), tmp_path, outputs={"restore": False})
    for path in ("ab", before):
        job.write(path, "1")
    job.round(last=True)
    job.end()
    job.begin()
    job.write(after, "2")
    job.round(last=True)
    assert job.kept == {"ab": b"1", after: b"2"}
    assert len(job.stored) == 2


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


def test_rows_of_another_node_are_restored_whichever_is_first(job: Job) -> None:
    """Node rank 0 starts the next attempt before node rank 1, whose rows the backup lacks."""
    job.write("a", "0")
    job.round(last=True)
    folder = indexes.folder_of(job.job_id, 1, "another")
    job.blobs.write(f"{folder}/contents", b"1")
    digest = hashlib.sha256(b"1").hexdigest()
    file = KeptFile("a", digest, 1, 0.0, False, 1, f"{folder}/contents")
    indexes.write(job.blobs, folder, 1, KeptSet(1, {"a": file}, 0, 0, None))
    job.end()
    job.begin()
    assert (job.work / "a").read_text() == "0"
    job.claim = replace(job.claim, node_rank=1)
    with job.database.jobs() as session:
        session.get_one(AssignmentRow, job.claim.assignment_id).node_rank = 1
    (job.folder.path / "kept.json").unlink()
    job.bring()
    assert (job.work / "a").read_text() == "1"


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


def test_a_job_that_continues_another_begins_with_its_files(job: Job) -> None:
    job.write("out/ckpt.pt", "of the first")
    job.round(last=True)
    job.end(Reason.USER_ERROR)
    first, before = job.job_id, job.kept
    job.document["continues"] = first
    job.job_id = scenes.submit(job.database, **job.document)
    job.begin()
    assert (job.work / "out/ckpt.pt").read_text() == "of the first"
    assert job.restored == f"Restored 1 file of job {first} (12.0 B)."
    job.round()
    assert job.kept == before, "they are its own now"
    job.write("out/ckpt.pt", "of the second")
    job.round()
    job.end()
    job.begin()
    assert (job.work / "out/ckpt.pt").read_text() == "of the second"
    job.job_id = first
    assert job.kept == before


def test_a_job_that_kept_nothing_hands_on_the_files_that_it_continues(job: Job) -> None:
    job.write("ckpt.pt", "of the first")
    job.round(last=True)
    job.end(Reason.USER_ERROR)
    first = job.job_id
    for is_cancelled in (True, False):
        job.document["continues"] = job.job_id
        job.job_id = scenes.submit(job.database, **job.document)
        if is_cancelled:
            with job.database.jobs() as session:
                stopping.cancel(session, job.job_id, "ada")
        else:
            job.begin()
            job.end(Reason.USER_ERROR)  # before its first round
    job.document["continues"] = job.job_id
    job.job_id = scenes.submit(job.database, **job.document)
    with job.database.read_jobs() as session, pytest.raises(LockstepError, match="has not ended"):
        removal.check(session, first, among=EVERY)
    job.begin()
    assert (job.work / "ckpt.pt").read_text() == "of the first"
    assert job.restored == f"Restored 1 file of job {first} (12.0 B)."


def test_a_job_that_continues_one_without_files_says_so(job: Job) -> None:
    for kept, why in (((), "kept no files"), (("a",), "has no files any more")):
        for name in kept:
            job.write(name)
        job.round(last=True)
        job.end(Reason.USER_ERROR)
        with job.database.jobs() as session:
            kept_files.remove_all(session, job.job_id)
        job.document["continues"] = former = job.job_id
        job.job_id = scenes.submit(job.database, **job.document)
        job.begin()
        assert job.restored == f"Job {former} {why}, so the script begins without them."


def test_a_train_job_that_continues_one_without_a_checkpoint_says_so(
    database: Database, tmp_path: Path
) -> None:
    former = scenes.run(database)
    scenes.end(database, former, Reason.USER_ERROR)
    scenes.release(database, former)
    train = {**scenes.document(continues=former.job_id), "script": None}
    blobs = BlobStore(str(tmp_path / "store"))
    job = Job(database, blobs, tmp_path / "node", **train)
    assert job.restored == (f"Job {former.job_id} has no checkpoint, so training begins at step 0.")
