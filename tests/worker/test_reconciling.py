"""Differences between rows and store after a restore: valid checkpoints, and the one to resume."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from sqlalchemy import delete

from lockstep.domain.life.outcomes import Reason
from lockstep.storage.attempts import checkpoints
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import CheckpointRow
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.objects.published import Note, write_note
from lockstep.storage.objects.unpublished import NOTE
from lockstep.worker.upload.reconciling import reconcile
from lockstep.worker.upload.stream import Stream
from tests.harness.builders import put_tree
from tests.harness.databases import Backup
from tests.harness.node import Node
from tests.harness.processes import until
from tests.storage import scenes


class World:
    """A running attempt and a store."""

    def __init__(self, database: Database, home: Path) -> None:
        self.database, self.home = database, home
        self.blobs = BlobStore(str(home / "store"))
        self.claim = scenes.run(database)

    @property
    def stream(self) -> Stream:
        claim = self.claim
        return Stream(claim.assignment_id, claim.job_id, claim.attempt_number, claim.token)

    def store(self, step: int) -> tuple[str, Note]:
        """Put a checkpoint into the store, without any row."""
        folder = self.home / "made"
        folder.mkdir()
        (folder / "weights").write_text(f"of step {step}")
        digest = hashlib.sha256((folder / "weights").read_bytes()).hexdigest()
        files = {"weights": {"bytes": (folder / "weights").stat().st_size, "sha256": digest}}
        text = json.dumps({"format": 1, "step": step, "files": files})
        (folder / "manifest.json").write_text(text)
        number = self.claim.attempt_number
        location = f"jobs/{self.claim.job_id}/{number}/step-{step:08d}"
        put_tree(self.blobs, folder, location)
        shutil.rmtree(folder)
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        return location, Note(
            attempt=number, step=step, bytes=10, sha256=sha256, final=step == 70, value=100 - step
        )

    def publish(self, step: int) -> None:
        location, note = self.store(step)
        with self.database.jobs() as session:
            given = note.model_dump(exclude={"attempt"})
            assert checkpoints.publish(
                session, self.claim.assignment_id, self.claim.token, location=location, **given
            )
        write_note(self.blobs, location, note)

    def rows(self) -> list[dict[str, object]]:
        with self.database.read_jobs() as session:
            found = checkpoints.of_job(session, self.claim.job_id)
        names = ("attempt", "step", "location", "bytes", "sha256", "value", "final")
        return [{name: getattr(row, name) for name in names} for row in found]

    def steps(self) -> list[object]:
        return [row["step"] for row in self.rows()]


@pytest.fixture
def world(database: Database, tmp_path: Path) -> World:
    return World(database, tmp_path)


def again(world: World) -> None:
    """Start the next attempt at the job."""
    scenes.end(world.database, world.claim, Reason.KILLED)
    scenes.release(world.database, world.claim)
    scenes.skip_backoff(world.database, world.claim.job_id)
    world.claim = scenes.start(world.database, world.claim.job_id)


def test_restored_rows_are_the_lost_ones_and_name_existing_files(world: World) -> None:
    world.publish(50)
    backup = Backup(world.database)
    world.publish(60)
    world.publish(70)
    with world.database.jobs() as session:
        for location in checkpoints.prune(session, world.claim.job_id, 2):
            world.blobs.delete_tree(location)
    expected = world.rows()
    assert len(expected) == 2
    backup.restore()
    assert world.steps() == [50]
    for _ in range(2):
        found = reconcile(world.database, world.blobs, world.stream)
        assert world.rows() == expected
        assert [each.step for each in found.published] == [70, 60]
        assert found.others == []
    kinds = scenes.kinds(world.database, world.claim.job_id)
    assert kinds.count("checkpoints_reconciled") == 1


def test_nothing_is_forgotten_where_the_store_has_nothing_of_the_job(world: World) -> None:
    """The store may not be mounted."""
    world.publish(50)
    shutil.move(world.home / "store", world.home / "elsewhere")
    found = reconcile(world.database, world.blobs, world.stream)
    assert [each.step for each in found.published] == world.steps() == [50]


def test_an_unpublished_checkpoint_is_the_last_choice_and_gets_no_row(world: World) -> None:
    world.publish(50)
    world.store(60)
    found = reconcile(world.database, world.blobs, world.stream)
    assert [each.step for each in found.published] == world.steps() == [50]
    assert [each.step for each in found.others] == [60]


def test_an_unpublished_checkpoint_is_no_source_of_first_weights(world: World) -> None:
    world.store(60)
    assert reconcile(world.database, world.blobs, world.stream) == ([], [])


def test_an_attempt_that_lost_its_lease_changes_no_row(world: World) -> None:
    world.publish(50)
    world.publish(60)
    old = world.stream
    again(world)
    with world.database.jobs() as session:
        session.execute(delete(CheckpointRow).where(CheckpointRow.step == 60))
    reconcile(world.database, world.blobs, old)
    assert world.steps() == [50]
    reconcile(world.database, world.blobs, world.stream)
    assert world.steps() == [60, 50]


def test_a_note_that_cannot_be_read_is_none(world: World) -> None:
    world.publish(50)
    location, _note = world.store(60)
    world.blobs.write(f"{location}/{NOTE}", b"{")
    assert [
        each.step for each in reconcile(world.database, world.blobs, world.stream).published
    ] == [50]


def test_another_checkpoint_of_the_same_attempt_and_step_replaces_the_row(world: World) -> None:
    """The number of an attempt that the backup does not have is used again."""
    world.publish(50)
    with world.database.read_jobs() as session:
        before = checkpoints.ids(session, world.claim.job_id)
    with world.database.jobs() as session:
        given = {
            "location": world.rows()[0]["location"],
            "bytes": 11,
            "sha256": "f" * 64,
            "final": False,
        }
        assert checkpoints.publish(
            session, world.claim.assignment_id, world.claim.token, step=50, **given
        )
    (row,) = world.rows()
    assert (row["bytes"], row["sha256"]) == (11, "f" * 64)
    with world.database.read_jobs() as session:
        assert checkpoints.ids(session, world.claim.job_id) != before


SOURCE = """
resumed = folder / 'resume/weights'
log('from ' + (resumed.read_text() if resumed.exists() else 'nothing'))
event('running')
ranks()
{then}
"""
TWO = "checkpoint(10); checkpoint(20); finish('killed', 'for the test')"


def failed_once(node: Node) -> str:
    """Return a job whose first attempt saved step 20 and failed."""
    once = "if not resumed.exists(): " + TWO + "\nfinish()"
    job_id = node.submit(SOURCE.format(then=once))
    node.wait(job_id, "queued")
    node.released(job_id)
    return job_id


def resumes_from_20(node: Node, job_id: str) -> None:
    scenes.skip_backoff(node.database, job_id)
    node.place(job_id)
    node.wait(job_id, "succeeded")
    assert [line.text for line in node.logs(job_id)] == ["from nothing", "from weights of 20"]


def test_an_attempt_resumes_from_the_newest_checkpoint_in_the_store(node: Node) -> None:
    """Retention keeps one: the row names step 10, and the store has step 20."""
    job_id = failed_once(node)
    assert node.checkpoints(job_id) == [20]
    with node.database.jobs() as session:
        (row,) = checkpoints.of_job(session, job_id)
        row.step, row.location = 10, row.location.replace("20", "10")
        row.sha256 = "0" * 64
    resumes_from_20(node, job_id)
    assert node.checkpoints(job_id) == [20]
    (message,) = [
        message for kind, message in node.events(job_id) if kind == "checkpoints_reconciled"
    ]
    assert message == (
        "The checkpoints in the database differed from those in the store. Published again: step "
        "20; deleted in the store and removed from the list: step 10."
    )


def test_a_job_without_a_row_resumes_from_the_store(node: Node) -> None:
    """The backup was made before the job's first attempt."""
    job_id = failed_once(node)
    with node.database.jobs() as session:
        session.execute(delete(CheckpointRow).where(CheckpointRow.job_id == job_id))
    resumes_from_20(node, job_id)


def test_a_job_resumes_from_an_unpublished_checkpoint_instead_of_failing(node: Node) -> None:
    job_id = failed_once(node)
    saved = node.store / f"jobs/{job_id}/1/step-00000020"
    shutil.copytree(saved, saved.with_name("step-00000030"))
    (saved.with_name("step-00000030") / NOTE).unlink()
    (saved / "weights").write_text("damaged")
    resumes_from_20(node, job_id)
    skipped = [message for kind, message in node.events(job_id) if kind == "checkpoint_skipped"]
    until(lambda: skipped, what="the event")
    assert skipped[0].startswith("Checkpoint of step 20 is not used: weights has 7 bytes")
