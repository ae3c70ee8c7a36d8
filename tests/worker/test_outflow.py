"""The pumps of an attempt together: an end that no driver can hold up."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from domain.attempt import AssignmentFile
from domain.reading import read_spec
from storage.blobs import BlobStore
from storage.database import Database
from tests.worker.node import until
from tests.worker.test_shipping import STREAM
from worker import outflow
from worker.folders import Folder
from worker.outflow import Outflow
from worker.sampling import Sampler


def test_a_driver_that_does_not_answer_keeps_no_job_from_its_end(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, asked = threading.Event(), threading.Event()

    def sample(_sampler: Sampler) -> dict[str, float]:
        asked.set()
        hangs.wait()
        return {}

    monkeypatch.setattr(Sampler, "sample", sample)
    monkeypatch.setattr(outflow, "SYSTEM_PATIENCE_SECONDS", 0.2)
    folder = Folder(tmp_path / STREAM.assignment_id)
    folder.create()
    spec = read_spec({"name": "x", "kind": "script", "script": {"command": ["true"]}, "resources": {"gpus": 1}})
    assignment = AssignmentFile(
        job_id=STREAM.job_id,
        attempt_number=1,
        assignment_id=STREAM.assignment_id,
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
    made = Outflow(
        database,
        BlobStore(str(tmp_path / "store")),
        folder,
        STREAM,
        assignment,
        pause_seconds=0.01,
        sample_seconds=0.01,
    )
    made.start()
    assert asked.wait(30)
    began = time.monotonic()
    until(lambda: made.finish(0.01), what="the end")
    assert time.monotonic() - began >= 0.2
    hangs.set()
    made.join(30)
