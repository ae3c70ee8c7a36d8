"""The weights to start from and the checkpoint to go on from, brought into the attempt's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from domain.reading import read_spec
from domain.timings import Timings
from storage import jobs
from storage.attempts import Claim
from storage.blobs import BlobStore
from tests.worker.node import Node
from worker.folders import Folder
from worker.preparing import InitUnavailableError, prepare

TRAIN: dict[str, Any] = {
    "name": "second",
    "kind": "train",
    "train": {"task": "causal_lm", "batch": {"size": 4, "micro_size": 2}, "steps": 10},
}
SOURCE = "jobs/first/1/step-00000010"


def claim(init_from: str | None, **changes: Any) -> Claim:
    spec = {**TRAIN, "train": {**TRAIN["train"], "init_from": init_from}}
    values: dict[str, Any] = {
        "assignment_id": "a1",
        "token": "token",
        "job_id": "second",
        "attempt_id": "attempt",
        "attempt_number": 1,
        "spec": spec,
        "plan": None,
        "node_name": "n",
        "node_rank": 0,
        "node_count": 1,
        "ranks_here": 1,
        "world_size": 1,
        "devices": [0],
        "device_kind": "cpu",
        "rendezvous_host": "127.0.0.1",
        "rendezvous_port": 1,
        "resume": None,
        "resume_step": None,
        "timeout_left_seconds": None,
    }
    return Claim(**values | changes)


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    found = BlobStore(str(tmp_path / "store"))
    for key in (SOURCE, "jobs/second/1/step-00000005"):
        folder = tmp_path / "made" / key
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(key)
        found.put_tree(folder, key)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "node/a1")


def test_another_jobs_checkpoint_is_brought_before_the_launch(folder: Folder, blobs: BlobStore) -> None:
    for _ in range(2):  # Preparing is repeated after a failure.
        prepare(folder, claim("job:first@10", init=SOURCE), blobs, Timings())
    assert (folder.path / "init/manifest.json").read_text() == SOURCE
    assert not (folder.path / "resume").exists()
    assert folder.assignment() is not None


def test_a_job_that_goes_on_brings_its_own_checkpoint_alone(folder: Folder, blobs: BlobStore) -> None:
    resumes = claim("job:first@10", resume="jobs/second/1/step-00000005", resume_step=5)
    prepare(folder, resumes, blobs, Timings())
    assert (folder.path / "resume/manifest.json").read_text() == "jobs/second/1/step-00000005"
    assert not (folder.path / "init").exists()


def test_a_path_is_the_engines_to_open(folder: Folder, blobs: BlobStore) -> None:
    prepare(folder, claim("/data/weights.safetensors"), blobs, Timings())
    assert not (folder.path / "init").exists()


def test_a_checkpoint_that_is_gone_is_named_and_nothing_is_launched(folder: Folder, blobs: BlobStore) -> None:
    with pytest.raises(InitUnavailableError, match="job:first@best is not there any more"):
        prepare(folder, claim("job:first@best"), blobs, Timings())
    assert folder.assignment() is None


def test_a_store_that_lost_it_is_a_failure_that_may_pass(folder: Folder, blobs: BlobStore) -> None:
    with pytest.raises(FileNotFoundError):
        prepare(folder, claim("job:first", init="jobs/first/1/step-00000099"), blobs, Timings())
    assert not (folder.path / "init").exists()


def test_a_job_whose_first_weights_are_gone_fails_with_the_reason(node: Node) -> None:
    document = {**TRAIN, "train": {**TRAIN["train"], "init_from": "job:0192@7"}}
    with node.database.jobs() as session:
        job, _ = jobs.create(session, document=document, spec=read_spec(document), plan=None, actor="test")
        job_id = job.id
    node.place(job_id)
    outcome = node.wait(job_id, "failed").outcome
    assert outcome["reason"] == "bad_spec"
    assert "job:0192@7 is not there any more" in outcome["message"]
