"""Restore of the database during an attempt: its agent sends the missing data again.

Real databases of both kinds; no agent, except if the supervisor's loop is the subject.
"""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from sqlalchemy import delete

from lockstep.domain import limits
from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import LogRecord, segment_name
from lockstep.storage.attempts import checkpoints, events, nodes
from lockstep.storage.db.database import Database
from lockstep.storage.db.series_tables import StreamRow
from lockstep.storage.db.tables import NodeRow
from lockstep.storage.logs import log_pages
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.series import series_query
from lockstep.worker.folders import Folder
from lockstep.worker.upload.events.event_uploader import EventUploader
from lockstep.worker.upload.logs import LogUploader
from lockstep.worker.upload.metrics import MetricsUploader
from lockstep.worker.upload.stream import NotOpenError, Stream
from lockstep.worker.upload.uploaders import Uploaders
from tests.harness.databases import Backup
from tests.harness.node import Node
from tests.harness.processes import signalled, stop_between_writes, until
from tests.storage import scenes
from tests.worker.test_upload_loops import upload_loops_of

SCRIPT = {"kind": "script", "script": {"command": ["true"]}}


class Job:
    """A running attempt's files, and the stored data."""

    def __init__(self, database: Database, home: Path) -> None:
        claim = scenes.run(database)
        self.database = database
        self.stream = Stream(claim.assignment_id, claim.job_id, claim.attempt_number, claim.token)
        self.folder = Folder(home / claim.assignment_id)
        self.folder.create()
        self.warnings: list[str] = []
        self.told: list[str] = []

    def metrics(self) -> MetricsUploader:
        return self._told(
            MetricsUploader(self.database, self.folder, self.stream, self.warnings.append)
        )

    def logs(self) -> LogUploader:
        return self._told(
            LogUploader(self.database, self.folder, self.stream, self.warnings.append)
        )

    def _told(self, uploader):
        uploader.on_set_back = self.told.append
        return uploader

    def write(self, steps: range, *, padding: str = "") -> None:
        """Write a point and a line of each step; each ten lines are a segment."""
        with self.folder.file(attempt.METRICS).open("a") as file:
            file.writelines(
                json.dumps({"step": step, "loss": step / 2}) + padding + "\n" for step in steps
            )
        for step in steps:
            with (self.folder.file(attempt.LOGS) / segment_name(step // 10)).open("a") as file:
                file.write(
                    LogRecord(time=1.0, rank=0, stream="stdout", text=f"{step}").model_dump_json()
                    + "\n"
                )

    def steps(self) -> list[int]:
        with self.database.read_series() as session:
            views = series_query.read(
                session, self.stream.job_id, names=["loss"], max_points=100_000
            )
        return [step for view in views for step in view.step]

    def lines(self) -> list[str]:
        with self.database.read_series() as session:
            return [
                line.text for line in log_pages.page(session, self.stream.job_id, limit=1000).lines
            ]

    def events(self, kind: str) -> list[str]:
        with self.database.read_jobs() as session:
            found = events.page(session, self.stream.job_id, limit=100)
        return [row.message for row in found if row.kind == kind]


@pytest.fixture
def job(database: Database, tmp_path: Path) -> Job:
    return Job(database, tmp_path)


def upload(*uploaders: MetricsUploader | LogUploader, last: bool = False) -> None:
    for uploader in uploaders:
        while uploader.step(last):
            pass


def test_data_missing_after_a_restore_is_sent_again_once(job: Job) -> None:
    uploaders = job.metrics(), job.logs()
    job.write(range(25))
    upload(*uploaders)
    backup = Backup(job.database)
    job.write(range(25, 60))
    upload(*uploaders)
    backup.restore()
    job.write(range(60, 70))
    upload(*uploaders)
    assert job.steps() == list(range(70))
    assert job.lines() == [str(step) for step in range(70)]
    assert job.told == ["metrics", "log lines"]
    assert job.warnings == []


def test_a_restore_just_before_the_end_is_detected(job: Job) -> None:
    """No later write exists that the database could refuse."""
    uploaders = job.metrics(), job.logs()
    job.write(range(5))
    upload(*uploaders)
    backup = Backup(job.database)
    job.write(range(5, 45))
    upload(*uploaders)
    backup.restore()
    upload(*uploaders, last=True)
    assert job.steps() == list(range(45))
    assert job.lines() == [str(step) for step in range(45)]


def test_a_stream_that_the_backup_does_not_have_is_opened_again(job: Job) -> None:
    with job.database.series() as session:
        session.execute(delete(StreamRow))
    backup = Backup(job.database)
    uploaders = job.metrics(), job.logs()
    job.write(range(20))
    upload(*uploaders)
    backup.restore()
    job.write(range(20, 30))
    upload(*uploaders)
    assert job.steps() == list(range(30))
    assert job.lines() == [str(step) for step in range(30)]


def test_a_database_that_is_empty_for_a_moment_is_waited_for(job: Job) -> None:
    """A restore that is not one transaction shows tables without rows."""
    uploaders = job.metrics(), job.logs()
    empty = Backup(job.database)
    empty.forget_all()
    job.write(range(20))
    upload(*uploaders)
    backup = Backup(job.database)
    empty.restore()
    job.write(range(20, 30))
    for uploader in uploaders:
        for _ in range(3):
            with pytest.raises(NotOpenError, match="has no stream for this attempt"):
                uploader.step(True)
        assert not uploader.refused
    backup.restore()
    upload(*uploaders, last=True)
    assert job.steps() == list(range(30))
    assert job.lines() == [str(step) for step in range(30)]


def test_the_offset_of_a_backup_may_be_the_current_one(job: Job) -> None:
    """An empty database refuses it, and then the offset is right: no reason to stop."""
    uploader = job.metrics()
    job.write(range(5))
    upload(uploader)
    backup = Backup(job.database)
    with job.database.series() as session:
        session.execute(delete(StreamRow))
    job.write(range(5, 10))
    read = uploader._read_offset

    def restored_before_it_is_read() -> None:
        backup.restore_series()
        read()

    uploader._read_offset = restored_before_it_is_read  # type: ignore[method-assign]
    upload(uploader)
    assert not uploader.refused
    assert job.steps() == list(range(10))


def test_missing_log_segments_are_named_at_their_offset(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploader = job.logs()
    job.write(range(5))
    upload(uploader)
    backup = Backup(job.database)
    monkeypatch.setattr(limits, "LOG_STORED_BYTES", 0)
    job.write(range(5, 45))
    upload(uploader)
    assert [path.stem for path in job.folder.file("logs").glob("*.jsonl")] == ["000004"]
    backup.restore()
    job.write(range(45, 50))
    upload(uploader)
    lines = job.lines()
    assert lines[:5] + lines[6:] == [str(step) for step in [*range(5), *range(40, 50)]]
    assert lines[5].startswith("… about 4.0 MiB missing: the database was restored")
    assert job.warnings == ["about 4.0 MiB of the log are missing: they are no longer on the node"]


def test_missing_metrics_are_named(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    uploader = job.metrics()
    uploader._file.spool._piece_bytes = 1
    job.write(range(5))
    upload(uploader)
    backup = Backup(job.database)
    monkeypatch.setattr(limits, "METRIC_SPOOL_STORED_BYTES", 8192)
    job.write(range(5, 500), padding=" " * 100)
    upload(uploader)
    backup.restore()
    job.write(range(500, 510))
    upload(uploader)
    found = job.steps()
    assert found[:5] == list(range(5))
    after = [step for step in found if step >= 450]
    assert after == list(range(450, 510))
    assert found == sorted(set(found))
    (warning,) = job.warnings
    assert warning.endswith(" KiB of the metrics are missing: they are no longer on the node")


def test_stored_bytes_are_freed_before_any_point_is_dropped(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploader = job.metrics()
    job.write(range(20_000), padding=" " * 100)
    upload(uploader)
    size = job.folder.file(attempt.METRICS).stat().st_size
    assert size > 2_000_000
    # Half of it is stored, and the other half is within the limit.
    monkeypatch.setattr(limits, "METRIC_SPOOL_BYTES_MAX", size + 100_000)
    job.write(range(20_000, 25_000), padding=" " * 100)
    upload(uploader)
    assert [text for text in job.warnings if "limited" in text] == []
    assert job.steps()[-1] == 24_999


def test_events_are_carried_out_again_and_rows_agree_with_the_store(
    job: Job, tmp_path: Path
) -> None:
    reporter = events_of(job, tmp_path)
    save(job, 10)
    save(job, 20)
    run(reporter)
    backup = Backup(job.database)
    for step in (30, 40, 50):
        save(job, step)
    say(job, "resumed", step=1, **{"from": "resume"})
    run(reporter)
    expected = rows(job)
    assert [row["step"] for row in expected] == [50, 40]
    backup.restore()
    assert [row["step"] for row in rows(job)] == [20, 10]
    say(job, "resumed", step=2, **{"from": "resume"})
    run(reporter)
    assert rows(job) == expected
    assert job.events("resumed") == [
        f"Training resumes from the checkpoint of step {step}." for step in (1, 2)
    ]


def test_rows_of_missing_checkpoints_are_removed_without_a_new_checkpoint(
    job: Job, tmp_path: Path
) -> None:
    store = BlobStore(str(tmp_path / "store"))
    reporter = EventUploader(
        job.database, store, job.folder, job.stream, node_name="n1", is_script=False, keep_last=3
    )
    save(job, 10)
    run(reporter)
    backup = Backup(job.database)
    save(job, 20)
    run(reporter)
    store.delete_tree(f"jobs/{job.stream.job_id}/1/step-00000010")
    backup.restore()
    run(reporter, last=True)
    assert [row["step"] for row in rows(job)] == [20]
    (message,) = job.events("checkpoints_reconciled")
    assert message.endswith("Deleted in the store and removed from the list: step 10.")


def events_of(job: Job, home: Path) -> EventUploader:
    store = BlobStore(str(home / "store"))
    return EventUploader(
        job.database, store, job.folder, job.stream, node_name="n1", is_script=False, keep_last=2
    )


def save(job: Job, step: int) -> None:
    """Save as the engine does it."""
    target = job.folder.file(attempt.CHECKPOINTS) / f"step-{step:08d}"
    target.mkdir()
    (target / "weights").touch()
    files = {"weights": {"bytes": 0, "sha256": hashlib.sha256().hexdigest()}}
    text = json.dumps({"format": 1, "step": step, "files": files})
    (target / attempt.MANIFEST).write_text(text)
    sha256 = hashlib.sha256((target / attempt.MANIFEST).read_bytes()).hexdigest()
    metric = {"name": "eval/loss", "value": 100.0 - step}
    say(
        job,
        "checkpoint",
        step=step,
        folder=target.name,
        bytes=2,
        sha256=sha256,
        final=False,
        metric=metric,
    )


def say(job: Job, kind: str, /, **data: object) -> None:
    with job.folder.file(attempt.EVENTS).open("a") as file:
        file.write(json.dumps({"kind": kind, "time": 1.0, "data": data}) + "\n")


def run(reporter: EventUploader, *, last: bool = False) -> None:
    while reporter.step(last):
        pass


def rows(job: Job) -> list[dict[str, object]]:
    """Return the values in the rows of the job's checkpoints, newest first."""
    with job.database.read_jobs() as session:
        found = checkpoints.of_job(session, job.stream.job_id)
    names = ("attempt", "step", "location", "bytes", "sha256", "value", "final")
    return [{name: getattr(row, name) for name in names} for row in found]


@pytest.fixture
def uploaders(job: Job) -> Iterator[Uploaders]:
    made = upload_loops_of(job.database, job.folder.path.parent, SCRIPT, job.stream)
    yield made
    made.stop()
    made.join(60)


def test_a_job_that_writes_nothing_more_is_whole_again(job: Job, uploaders: Uploaders) -> None:
    """Samples of its node are refused, which makes every uploader read its offset again."""
    job.write(range(5))
    uploaders.start()
    until(lambda: job.steps() == list(range(5)) and len(job.lines()) == 5, 60, "the first steps")
    backup = Backup(job.database)
    job.write(range(5, 25))
    until(lambda: job.steps() == list(range(25)) and len(job.lines()) == 25, 60, "further steps")
    backup.restore()
    until(lambda: job.steps() == list(range(25)) and len(job.lines()) == 25, 60, "what was missing")
    until(lambda: len(job.events("stream_reset")) == 2, 60, "the events")
    assert set(job.events("stream_reset")) == {
        f"The database was restored from a backup: missing {what} are sent again."
        for what in ("metrics", "log lines")
    }


def test_a_node_that_the_backup_does_not_have_is_registered_again(own_node: Node) -> None:
    own_node.start()
    with own_node.database.jobs() as session:
        session.execute(delete(NodeRow))

    def back() -> bool:
        with own_node.database.read_jobs() as session:
            return nodes.is_registered(session, own_node.name)

    until(back, 60, "the node is registered again")
    job_id = own_node.submit("ranks(); finish()")
    own_node.wait(job_id, "succeeded")


def test_an_attempt_that_is_unclaimed_in_the_backup_continues(
    own_node: Node, tmp_path: Path
) -> None:
    """Its claim, its stream and its start came after the backup."""
    job_id = own_node.submit("ranks(); metric({'step': 1, 'loss': 1.0}); until_told()", place=False)
    own_node.start()
    until(lambda: len(all_nodes(own_node)) == 1, 60, "the node")
    agent = [psutil.Process(own_node.agent.pid)]
    stop_between_writes(agent, tmp_path)
    own_node.place(job_id)
    backup = Backup(own_node.database)
    signalled(agent, signal.SIGCONT)
    own_node.wait(job_id, "running")
    until(lambda: "loss" in own_node.series(job_id), 60, "the point")
    pid = json.loads((own_node.folder(job_id) / "launcher.json").read_text())["pid"]
    backup.restore()
    assert own_node.job(job_id).state.value == "starting"
    own_node.wait(job_id, "running")
    until(lambda: "loss" in own_node.series(job_id), 60, "the point again")
    assert json.loads((own_node.folder(job_id) / "launcher.json").read_text())["pid"] == pid
    own_node.cancel(job_id)
    own_node.wait(job_id, "cancelled")
    assert len(own_node.attempts(job_id)) == 1


def all_nodes(node: Node) -> list[NodeRow]:
    with node.database.read_jobs() as session:
        return nodes.all_nodes(session)


@pytest.mark.parametrize("is_continued", [False, True])
@pytest.mark.parametrize(
    ("stored", "missing"),
    [(4, ["Points and log lines of the steps 4 to 10 are missing"]), (11, [])],
)
def test_points_that_a_restore_has_lost_are_reported_by_the_next_attempt(
    job: Job, tmp_path: Path, stored: int, missing: list[str], is_continued: bool
) -> None:
    """Also by the first attempt of a job that continues this one."""
    job.write(range(1, stored))
    upload(job.metrics())
    reporter = EventUploader(
        job.database,
        BlobStore(str(tmp_path / "store")),
        job.folder,
        job.stream._replace(attempt_number=1 if is_continued else 2),
        node_name="n1",
        is_script=False,
        keep_last=3,
        continues=job.stream.job_id if is_continued else None,
    )
    say(job, "resumed", step=10, **{"from": "resume"})
    run(reporter)
    assert [text.split(":")[0] for text in job.events("points_missing")] == missing
    assert reporter.effects.resumed_step == 10
