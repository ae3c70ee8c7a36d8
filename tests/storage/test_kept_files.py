"""Rows of kept files: rounds under a token, the list, deletion and retention."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import update

from lockstep.domain.errors import LockstepError
from lockstep.domain.life.outcomes import Reason
from lockstep.storage.attempts import events, kept_files
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.attempts.kept_files import KeptFile, Round, RoundResult
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import JobRow
from lockstep.storage.jobs import retention, stopping
from lockstep.storage.objects.blobs import BlobStore
from tests.storage import scenes


def file(path: str, content: str = "a", *, attempt: int = 1) -> KeptFile:
    location = f"files/job/{attempt}/x/{content}"
    return KeptFile(path, content * 64, len(content), 5.0, False, attempt, location)


def publish(
    database: Database, claim: Claim, revision: int, put: list[KeptFile], gone: tuple[str, ...] = ()
) -> RoundResult:
    with database.jobs() as session:
        changes = Round(revision, put, gone, complete=False, age_seconds=0.0)
        return kept_files.publish(session, claim.assignment_id, claim.token, changes)


def names(database: Database, claim: Claim) -> list[str]:
    with database.read_jobs() as session:
        return [listed.name for listed in kept_files.of_job(session, claim.job_id)]


def test_a_round_is_whole_and_names_the_rows_that_it_changes(database: Database) -> None:
    claim = scenes.run(database)
    first = [file(f"out/{number:04d}") for number in range(1_200)]
    assert publish(database, claim, 0, first) is RoundResult.YES
    assert publish(database, claim, 1, [file("z", "b")], ("out/0000",)) is RoundResult.YES
    for stale in (0, 1, 3):
        assert publish(database, claim, stale, [file("no")]) is RoundResult.OTHER_REVISION
    assert names(database, claim) == [*(each.path for each in first[1:]), "z"]
    with database.read_jobs() as session:
        kept = kept_files.read(session, claim.job_id, 0)
        other = kept_files.read(session, claim.job_id, 1)
    assert (kept.revision, kept.files["z"]) == (2, file("z", "b"))
    assert (other.revision, other.files, other.other_files, other.other_bytes) == (
        0,
        {},
        1200,
        1200,
    )


def test_a_round_without_changes_moves_its_time_alone(database: Database) -> None:
    claim = scenes.run(database)
    publish(database, claim, 0, [file("a")])
    with database.read_jobs() as session:
        before = kept_files.mark(session, claim.job_id)
    assert publish(database, claim, 1, []) is RoundResult.YES
    with database.read_jobs() as session:
        after = kept_files.mark(session, claim.job_id)
    assert after.revisions == before.revisions == [1]
    assert before.as_of is not None
    assert after.as_of is not None
    assert after.as_of >= before.as_of


def test_an_attempt_that_lost_its_lease_stores_nothing(database: Database) -> None:
    claim = scenes.run(database)
    assert scenes.end(database, claim, Reason.SUCCEEDED)
    assert publish(database, claim, 0, [file("a")]) is RoundResult.REFUSED
    assert names(database, claim) == []


def test_files_of_further_nodes_are_listed_below_their_node(database: Database) -> None:
    scenes.add_node(database, "n1")
    scenes.add_node(database, "n2")
    job_id = scenes.submit(database, resources={"gpus": 2, "nodes": 2})
    placed = scenes.place(database, job_id, ("n1", (0,)), ("n2", (0,)))
    assert placed is not None
    for number, part in enumerate(placed.assignments, start=1):
        claim = scenes.claim(database, part.assignment_id, f"n{number}")
        assert claim is not None
        assert publish(database, claim, 0, [file("a")]) is RoundResult.YES
    assert names(database, claim) == ["a", "node1/a"]


def test_files_are_deleted_once_the_job_is_not_live(database: Database) -> None:
    claim = scenes.run(database)
    publish(database, claim, 0, [file("a"), file("b"), file("c", "c")])
    with database.jobs() as session, pytest.raises(LockstepError, match="is running") as refused:
        kept_files.remove(session, claim.job_id, [], actor="ada")
    assert refused.value.next_step == "delete them once it has ended or is paused"
    scenes.end(database, claim, Reason.SUCCEEDED)
    with database.jobs() as session:
        found = kept_files.of_job(session, claim.job_id)
        assert kept_files.remove(session, claim.job_id, found[1:], actor="ada") == [
            file("c", "c").location
        ], "a file that is left has the contents of b"
    assert names(database, claim) == ["a"]
    with database.read_jobs() as session:
        last = events.page(session, claim.job_id, order="newest", limit=1)[0]
        assert kept_files.mark(session, claim.job_id).revisions == [2]
    assert (last.kind, last.message) == ("files_removed", "2 files deleted by ada")


def test_files_go_with_their_retention_or_with_the_job(database: Database, tmp_path: Path) -> None:
    blobs = BlobStore(str(tmp_path))
    for days in (3, None):
        claim = scenes.run(database, retention={"files_days": days})
        publish(database, claim, 0, [file("a")])
        blobs.write(f"files/{claim.job_id}/1/x/a", b"a")
        scenes.end(database, claim, Reason.SUCCEEDED)
        with database.jobs() as session:
            long_ago = JobRow.finished_at - 3 * retention.DAY_SECONDS - 1
            session.execute(
                update(JobRow).where(JobRow.id == claim.job_id).values(finished_at=long_ago)
            )
        with database.read_jobs() as session:
            due = retention.due_files(session)
            # A scheduler of the version before takes all rows but those of points for lines.
            assert retention.due(session) == []
        assert [one.job_id for one in due] == [claim.job_id] * (days is not None)
        for one in due:
            heir = scenes.submit(database, continues=claim.job_id)
            assert not retention.expire_files(database, blobs, one)
            assert names(database, claim) == ["a"]
            with database.jobs() as session:
                stopping.cancel(session, heir, "ada")
            assert retention.expire_files(database, blobs, one)
        scenes.release(database, claim)
        if days is None:
            scenes.remove(database, blobs, claim.job_id)
        else:
            assert names(database, claim) == []
        assert blobs.find(f"files/{claim.job_id}") == []
