"""The upload loops of an attempt together: an end despite a driver that hangs, and order of data.

Numbers are stored before the checkpoint that follows them.
"""

from __future__ import annotations

import errno
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import AssignmentFile
from lockstep.domain.spec.reading import read_spec
from lockstep.storage.attempts import checkpoints
from lockstep.storage.db.database import Database
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.series import series, series_query
from lockstep.worker.devices.sampling import Sampler
from lockstep.worker.folders import Folder
from lockstep.worker.upload import uploaders
from lockstep.worker.upload.stream import Stream
from lockstep.worker.upload.upload_loop import UploadLoop
from lockstep.worker.upload.uploaders import Uploaders
from tests.harness.processes import until
from tests.storage import scenes


def upload_loops_of(
    database: Database, home: Path, what: dict[str, Any], stream: Stream
) -> Uploaders:
    """Return the upload loops of a claimed attempt on one rank, not started.

    ``what`` is the spec without its name.
    """
    folder = Folder(home / stream.assignment_id)
    folder.create()
    spec = read_spec({"name": "x", "resources": {"gpus": 1}, **what})
    assignment = AssignmentFile(
        job_id=stream.job_id,
        attempt_number=1,
        assignment_id=stream.assignment_id,
        spec=spec,
        plan=None,
        node_name="n",
        ranks_here=1,
        world_size=1,
        devices=[0],
        device_kind="cpu",
        rendezvous_port=1,
        stop_grace_seconds=1.0,
        exit_stall_seconds=1.0,
    )
    blobs = BlobStore(str(home / "store"))
    return Uploaders(
        database,
        blobs,
        folder,
        stream,
        assignment,
        pause_seconds=0.01,
        sample_seconds=0.01,
        files_seconds=60.0,
    )


def test_a_driver_that_does_not_answer_keeps_no_job_from_its_end(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, asked = threading.Event(), threading.Event()

    def sample(_sampler: Sampler) -> dict[str, float]:
        asked.set()
        hangs.wait()
        return {}

    monkeypatch.setattr(Sampler, "sample", sample)
    monkeypatch.setattr(uploaders, "SYSTEM_PATIENCE_SECONDS", 0.2)
    claim = scenes.run(database)
    stream = Stream(claim.assignment_id, claim.job_id, claim.attempt_number, claim.token)
    made = upload_loops_of(
        database, tmp_path, {"kind": "script", "script": {"command": ["true"]}}, stream
    )
    made.start()
    assert asked.wait(60)
    began = time.monotonic()
    until(lambda: made.finish(0.01), what="the end")
    assert time.monotonic() - began >= 0.2
    hangs.set()
    made.join(60)


class Spools:
    """Files of the ranks of a claimed training job, and the stored data."""

    def __init__(self, database: Database, home: Path):
        claim = scenes.run(database)
        self._database = database
        self.job_id = claim.job_id
        stream = Stream(claim.assignment_id, claim.job_id, claim.attempt_number, claim.token)
        self.uploaders = upload_loops_of(
            database, home, {"kind": "train", "train": scenes.document()["train"]}, stream
        )
        self._folder = Folder(home / claim.assignment_id)

    def trained(self, steps: int) -> None:
        """Write this many steps and a checkpoint of the last, as the engine does."""
        name = f"step-{steps:08d}"
        saved = self._folder.file(attempt.CHECKPOINTS) / name
        saved.mkdir(parents=True)
        (saved / "weights").touch()
        files = {"weights": {"bytes": 0, "sha256": hashlib.sha256().hexdigest()}}
        manifest = json.dumps({"format": 1, "step": steps, "files": files}).encode()
        (saved / attempt.MANIFEST).write_bytes(manifest)
        with self._folder.file(attempt.METRICS).open("a") as spool:
            for step in range(1, steps + 1):
                spool.write(json.dumps({"step": step, "train/loss": 1.0}) + "\n")
        digest = hashlib.sha256(manifest).hexdigest()
        data = {"step": steps, "folder": name, "bytes": 2, "sha256": digest, "final": False}
        with self._folder.file(attempt.EVENTS).open("a") as spool:
            spool.write(json.dumps({"kind": "checkpoint", "time": 1.0, "data": data}) + "\n")

    def points(self) -> int:
        with self._database.read_series() as session:
            return sum(
                curve.count
                for curve in series_query.read(session, self.job_id, names=["train/loss"])
            )

    def checkpoints(self) -> list[int]:
        with self._database.read_jobs() as session:
            return [row.step for row in checkpoints.of_job(session, self.job_id)]


@pytest.fixture
def spools(database: Database, tmp_path: Path) -> Iterator[Spools]:
    made = Spools(database, tmp_path)
    yield made
    made.uploaders.stop()
    made.uploaders.join(60)


def test_a_checkpoint_counts_only_once_the_numbers_before_it_are_stored(
    spools: Spools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a job that loses this node and resumes elsewhere has a gap in its curves."""
    seen: list[int] = []
    publish, append = checkpoints.publish, series.append

    def slow(*given: Any, **named: Any) -> bool:
        time.sleep(0.3)
        return append(*given, **named)

    def noted(*given: Any, **named: Any) -> bool:
        seen.append(spools.points())
        return publish(*given, **named)

    monkeypatch.setattr(series, "append", slow)
    monkeypatch.setattr(checkpoints, "publish", noted)
    spools.trained(10)
    spools.uploaders.start()
    until(lambda: spools.checkpoints() == [10], what="the checkpoint")
    assert seen == [10]


def test_a_checkpoint_does_not_wait_for_numbers_that_cannot_be_stored(
    spools: Spools, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> bool:
        raise LockstepError(ErrorCode.UNAVAILABLE, "the series database does not answer")

    monkeypatch.setattr(series, "append", away)
    monkeypatch.setattr(uploaders, "NUMBERS_PATIENCE_SECONDS", 0.2)
    spools.trained(10)
    spools.uploaders.start()
    until(lambda: spools.checkpoints() == [10], what="the checkpoint")
    assert spools.points() == 0


@pytest.mark.parametrize(("number", "gives_up"), [(errno.EROFS, True), (errno.ENOSPC, False)])
def test_a_last_upload_is_given_up_on_a_disk_that_fails_alone(number: int, gives_up: bool) -> None:
    def step(_last: bool) -> bool:
        raise OSError(number, "of the disk")

    loop = UploadLoop("x", step, pause_seconds=0.001, gives_up=lambda: True)
    loop.start()
    assert not loop.join(0.2), "its writer may go on"
    loop.finish()
    assert loop.join(10.0 if gives_up else 0.5) == gives_up
    assert loop.gave_up == gives_up
    loop.stop()
    assert loop.join(10.0)
