"""First weights and the checkpoint to resume from, copied into the attempt's folder."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from lockstep.domain.life.timings import Timings
from lockstep.storage.attempts.attempts import Claim, Published
from lockstep.storage.objects.blobs import BlobStore
from lockstep.worker.agent.outcomes import unprepared
from lockstep.worker.folders import Folder
from lockstep.worker.launch import preparing
from lockstep.worker.launch.preparing import InitUnavailableError, is_disk_failure, prepare
from lockstep.worker.launch.resuming import NoIntactCheckpointError
from tests.harness.builders import Repository, put_tree
from tests.harness.node import Node

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
        "published": [],
        "timeout_left_seconds": None,
    }
    return Claim(**values | changes)


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    found = BlobStore(str(tmp_path / "store"))
    folder = tmp_path / "made" / SOURCE
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(SOURCE)
    put_tree(found, folder, SOURCE)
    return found


def publish(blobs: BlobStore, made: Path, step: int) -> Published:
    """Publish a checkpoint of the second job, in the store and with its row."""
    folder = made / f"step-{step:08d}"
    folder.mkdir(parents=True)
    (folder / "weights").write_text(f"of step {step}")
    digest = hashlib.sha256((folder / "weights").read_bytes()).hexdigest()
    file = {"bytes": (folder / "weights").stat().st_size, "sha256": digest}
    text = json.dumps({"format": 1, "step": step, "files": {"weights": file}})
    (folder / "manifest.json").write_text(text)
    location = f"jobs/second/1/{folder.name}"
    put_tree(blobs, folder, location)
    shutil.rmtree(folder)
    return Published(step, location, hashlib.sha256(text.encode()).hexdigest())


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "node/a1")


def test_another_jobs_checkpoint_is_brought_before_the_launch(
    folder: Folder, blobs: BlobStore
) -> None:
    for _ in range(2):  # Preparation is repeated after a failure.
        prepare(folder, claim("job:first@10", init=SOURCE), blobs, Timings())
    assert (folder.path / "init/manifest.json").read_text() == SOURCE
    assert not (folder.path / "resume").exists()
    assert folder.assignment() is not None


def test_a_resumed_job_gets_only_its_own_newest_checkpoint(
    folder: Folder, blobs: BlobStore, tmp_path: Path
) -> None:
    published = [publish(blobs, tmp_path / "made", step) for step in (5, 3)]
    prepare(folder, claim("job:first@10", published=published), blobs, Timings())
    assert (folder.path / "resume/weights").read_text() == "of step 5"
    assert not (folder.path / "init").exists()
    assert (folder.path / "spool/events.jsonl").read_text() == ""


def test_a_damaged_checkpoint_is_skipped_with_one_event(
    folder: Folder, blobs: BlobStore, tmp_path: Path
) -> None:
    published = [publish(blobs, tmp_path / "made", step) for step in (5, 3)]
    (tmp_path / "store" / published[0].location / "weights").write_text("of step 6")
    for _ in range(2):  # Preparation is repeated after a failure.
        prepare(folder, claim(None, published=published), blobs, Timings())
    assert (folder.path / "resume/weights").read_text() == "of step 3"
    (told,) = (folder.path / "spool/events.jsonl").read_text().splitlines()
    event = json.loads(told)
    assert (event["kind"], event["data"]["folder"]) == ("checkpoint_skipped", "of step 5")
    assert "weights was changed" in event["data"]["why"]


def test_a_checkpoint_that_was_damaged_on_its_way_is_fetched_again(
    folder: Folder, blobs: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = [publish(blobs, tmp_path / "made", step) for step in (5, 3)]
    fetch, fetched = blobs.get_tree, []

    def worse(key: str, target: Path) -> None:
        fetch(key, target)
        fetched.append(key)
        if len(fetched) == 1:
            (target / "weights").write_text("of step 6")

    monkeypatch.setattr(blobs, "get_tree", worse)
    prepare(folder, claim(None, published=published), blobs, Timings())
    assert (folder.path / "resume/weights").read_text() == "of step 5"
    assert len(fetched) == 2


def test_a_job_without_an_intact_checkpoint_does_not_start_over(
    folder: Folder, blobs: BlobStore, tmp_path: Path
) -> None:
    published = [publish(blobs, tmp_path / "made", step) for step in (5, 3)]
    (tmp_path / "store" / published[0].location / "manifest.json").unlink()
    (tmp_path / "store" / published[1].location / "weights").unlink()
    with pytest.raises(
        NoIntactCheckpointError,
        match=r"step 5: manifest.json is missing; that of step 3: weights is missing",
    ):
        prepare(folder, claim(None, published=published), blobs, Timings())
    assert folder.assignment() is None


def test_a_path_is_the_engines_to_open(folder: Folder, blobs: BlobStore) -> None:
    prepare(folder, claim("/data/weights.safetensors"), blobs, Timings())
    assert not (folder.path / "init").exists()


def test_a_missing_checkpoint_is_named_and_nothing_is_launched(
    folder: Folder, blobs: BlobStore
) -> None:
    with pytest.raises(InitUnavailableError, match="job:first@best no longer exists"):
        prepare(folder, claim("job:first@best"), blobs, Timings())
    assert folder.assignment() is None


def test_a_checkpoint_missing_in_the_store_is_a_temporary_failure(
    folder: Folder, blobs: BlobStore
) -> None:
    with pytest.raises(FileNotFoundError):
        prepare(folder, claim("job:first", init="jobs/first/1/step-00000099"), blobs, Timings())
    assert not (folder.path / "init").exists()


def test_a_job_whose_first_weights_are_missing_fails_with_the_reason(node: Node) -> None:
    document = {**TRAIN, "train": {**TRAIN["train"], "init_from": "job:0192@7"}}
    job_id = node.create(document)
    node.place(job_id)
    outcome = node.wait(job_id, "failed").outcome
    assert outcome["reason"] == "bad_spec"
    assert "job:0192@7 no longer exists" in outcome["message"]


def test_a_nearly_full_disk_is_refused_before_any_file_is_written(
    tmp_path: Path, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "DISK_FREE_BYTES_MIN", 2**60)
    folder = Folder(tmp_path / "a1")
    with pytest.raises(
        OSError, match=r"the disk has .* free; at least 1048576.0 TiB are required"
    ) as refused:
        prepare(folder, claim(f"job:first/step-{10}"), blobs, Timings())
    assert is_disk_failure(refused.value)
    assert not (folder.path / "assignment.json").exists()
    assert not (folder.path / "code").exists()


@pytest.mark.parametrize(
    "error",
    [
        NoIntactCheckpointError("damaged"),
        IsADirectoryError(21, "in the archive"),
        FileNotFoundError(2, "x"),
        ValueError("x"),
    ],
)
def test_an_error_in_the_jobs_files_is_no_disk_failure(error: Exception) -> None:
    assert not is_disk_failure(error)


def test_large_files_outside_git_give_one_event(
    folder: Folder, blobs: BlobStore, tmp_path: Path
) -> None:
    repository = Repository(tmp_path / "code-of-job")
    ref = repository.commit(train="1", weights="version https://git-lfs.github.com/spec/v1\n")
    code = {"git": repository.url, "ref": ref}
    for _ in range(2):  # Preparation is repeated after a failure.
        prepare(folder, claim(None, spec={**TRAIN, "code": code}), blobs, Timings())
    (told,) = (folder.path / "spool/events.jsonl").read_text().splitlines()
    assert json.loads(told)["kind"] == "code_incomplete"
    assert json.loads(told)["data"]["why"].startswith("weights.py is a pointer to content")


def test_an_unknown_kind_of_device_is_refused_as_another_version(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "assignment")
    found = claim(None, device_kind="tpu")
    with pytest.raises(ValidationError) as caught:
        prepare(folder, found, BlobStore(str(tmp_path)), Timings(), interface=None, others=None)
    outcome = unprepared(caught.value, "n1")
    assert outcome.reason == "version"
    assert outcome.message.endswith("cannot read the job's plan: Input should be 'cuda' or 'cpu'")
