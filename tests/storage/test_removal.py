"""Deletion of a job: all its data, no data of others, and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Delete, func, select
from sqlalchemy.orm import Session

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.attempt import LogRecord
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.rights import EVERY
from lockstep.domain.training.definitions import SeriesDefinition
from lockstep.domain.training.metrics import StepValues
from lockstep.storage.attempts import checkpoints
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.db.database import Database
from lockstep.storage.db.whole import METADATA
from lockstep.storage.jobs import jobs, removal, stopping
from lockstep.storage.logs import logs
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.series import series, streams
from tests.harness.builders import put_tree
from tests.storage import scenes


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(str(tmp_path / "store"))


def lived(database: Database, blobs: BlobStore, folder: Path, **changes: object) -> Claim:
    """Create a job with points, lines, another source and a checkpoint.

    It has ended and is released.
    """
    claim = scenes.run(database, idempotency=("key", "print"), **changes)
    with database.series() as session:
        records = [StepValues(step, float(step), {"train/loss": 1.0}) for step in range(1, 1_500)]
        series.append(
            session,
            assignment_id=claim.assignment_id,
            token=claim.token,
            offset_before=0,
            offset_after=9,
            records=records,
            defined={"train/loss": SeriesDefinition(unit="nats")},
        )
        lines = [LogRecord(time=1.0, rank=0, stream="stdout", text="hello")]
        logs.append(
            session,
            assignment_id=claim.assignment_id,
            token=claim.token,
            offset_before=(0, 0),
            offset_after=(0, 6),
            records=lines,
        )
    checkpoint = folder / "step-00000005"
    checkpoint.mkdir()
    (checkpoint / "weights").write_text("w")
    key = f"jobs/{claim.job_id}/1/{checkpoint.name}"
    put_tree(blobs, checkpoint, key)
    with database.jobs() as session:
        assert checkpoints.publish(
            session,
            claim.assignment_id,
            claim.token,
            step=5,
            location=key,
            bytes=1,
            sha256="a" * 64,
            final=False,
        )
    scenes.end(database, claim, Reason.SUCCEEDED)
    scenes.seal(database, claim)
    scenes.release(database, claim)
    return claim


def rows(database: Database) -> dict[str, int]:
    """Return the number of rows of each table, in both databases."""
    found = {}
    for which, reading in (("jobs", database.read_jobs), ("series", database.read_series)):
        with reading() as session:
            for table in METADATA[which].sorted_tables:
                found[table.name] = session.execute(
                    select(func.count()).select_from(table)
                ).scalar_one()
    return found


def test_a_deleted_job_leaves_only_its_use_and_another_keeps_everything(
    database: Database, blobs: BlobStore, tmp_path: Path
) -> None:
    before = rows(database)
    claim = lived(database, blobs, tmp_path)
    with_one = rows(database)
    assert {name for name, count in with_one.items() if count > before[name]} >= {
        "jobs", "attempts", "assignments", "events", "checkpoints", "idempotency_keys",
        "series_chunks", "series_latest", "log_chunks", "log_totals", "progress", "streams",
    }  # fmt: skip
    other = scenes.submit(database, name="other", labels={"team": "a"})
    with_both = rows(database)
    scenes.remove(database, blobs, claim.job_id)
    after = rows(database)
    kept = {name: before[name] + with_both[name] - with_one[name] for name in before}
    nodes = {name: with_both[name] for name in ("nodes", "devices")}
    assert after == {**kept, **nodes, "ledger": 1}
    assert not blobs.exists(f"jobs/{claim.job_id}/1/step-00000005")
    assert not (tmp_path / "store/jobs" / claim.job_id).exists()
    assert scenes.job_of(database, other).name == "other"
    scenes.remove(database, blobs, claim.job_id)  # a second call changes nothing
    assert rows(database) == after


def test_a_job_that_has_not_ended_is_not_deleted(database: Database, blobs: BlobStore) -> None:
    claim = scenes.run(database)
    with pytest.raises(LockstepError, match="has not ended") as refusal:
        scenes.remove(database, blobs, claim.job_id)
    assert refusal.value.code is ErrorCode.CONFLICT
    scenes.end(database, claim, Reason.SUCCEEDED)
    with pytest.raises(LockstepError, match="node n1 has not yet confirmed that it removed"):
        scenes.remove(database, blobs, claim.job_id)
    scenes.release(database, claim)
    scenes.remove(database, blobs, claim.job_id)
    with database.read_jobs() as session:
        assert jobs.get(session, claim.job_id) is None


def test_a_job_another_one_begins_from_is_not_deleted(
    database: Database, blobs: BlobStore, tmp_path: Path
) -> None:
    claim = lived(database, blobs, tmp_path)
    train = scenes.document()["train"]
    heir = scenes.submit(database, name="heir", train={**train, "init_from": f"job:{claim.job_id}"})
    with pytest.raises(LockstepError, match=r"heir .* starts from checkpoints"):
        scenes.remove(database, blobs, claim.job_id)
    assert blobs.exists(f"jobs/{claim.job_id}/1/step-00000005/weights")
    with database.jobs() as session:
        stopping.cancel(session, heir, "ada")
    scenes.remove(database, blobs, claim.job_id)


def test_an_interrupted_deletion_continues(
    database: Database, blobs: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = lived(database, blobs, tmp_path)
    monkeypatch.setattr(removal, "CHUNKS_AT_ONCE", 1)
    chunks = rows(database)["series_chunks"]
    with database.jobs() as session:
        assert removal.mark(session, claim.job_id, among=EVERY)
        assert not removal.mark(session, claim.job_id, among=EVERY)
    answers = iter([removal.changed])

    def cut(session: Session, statement: Delete) -> int:
        for changed in answers:
            return changed(session, statement)
        raise LockstepError(ErrorCode.UNAVAILABLE, "the series database does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(removal, "changed", cut)
        with pytest.raises(LockstepError, match="does not answer"):
            removal.finish(database, blobs, claim.job_id)
    assert rows(database)["series_chunks"] == chunks - 1
    with database.read_jobs() as session:
        assert jobs.get(session, claim.job_id) is not None
    scenes.remove(database, blobs, claim.job_id)
    assert rows(database)["series_chunks"] == 0


def test_late_writes_for_a_deleted_job_are_refused(
    database: Database, blobs: BlobStore, tmp_path: Path
) -> None:
    claim = lived(database, blobs, tmp_path)
    scenes.remove(database, blobs, claim.job_id)
    with database.series() as session:
        assert not series.append(
            session, assignment_id=claim.assignment_id, token=claim.token, offset_before=9, offset_after=12,
            records=[StepValues(1, 1.0, {"a": 1.0})],
        )  # fmt: skip
    with database.series() as session:
        assert streams.state(session, claim.assignment_id) is None
