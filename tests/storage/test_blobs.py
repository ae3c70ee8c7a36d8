"""Blob store: a blob is complete or absent, in a folder and behind a URL."""

from __future__ import annotations

import hashlib
import json
import uuid
from pathlib import Path

import pytest

from lockstep.storage.objects import blobs
from lockstep.storage.objects.blobs import BlobStore
from lockstep.system.untrusted import Untrusted


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return BlobStore(
        str(tmp_path / "store") if request.param == "folder" else f"memory://{uuid.uuid4().hex}"
    )


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "step-00000050"
    folder.mkdir()
    return _written(folder, {"0.pt": b"weights", "empty": b""})


def _written(folder: Path, files: dict[str, bytes]) -> Path:
    listed = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in files.items()
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "manifest.json").write_text(json.dumps({"format": 1, "step": 50, "files": listed}))
    return folder


def _publish(store: BlobStore, folder: Path, key: str) -> None:
    sha256 = hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    store.put_checkpoint(Untrusted(folder.parent), folder.name, key, sha256)


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_file_comes_back_as_it_was(store: BlobStore, tmp_path: Path) -> None:
    source, target = tmp_path / "code.tar.gz", tmp_path / "new" / "copy.tar.gz"
    source.write_bytes(b"archive")
    assert not store.exists("uploads/abc.tar.gz")
    for _ in range(2):
        store.put_file(source, "uploads/abc.tar.gz")
    assert store.exists("uploads/abc.tar.gz")
    store.get_file("uploads/abc.tar.gz", target)
    assert target.read_bytes() == b"archive"


def test_a_tree_comes_back_as_it_was(store: BlobStore, checkpoint: Path, tmp_path: Path) -> None:
    key = "jobs/0198/1/step-00000050"
    for _ in range(2):
        _publish(store, checkpoint, key)
    assert store.exists(key)
    store.get_tree(key, tmp_path / "resume")
    assert _contents(tmp_path / "resume") == _contents(checkpoint)


def test_a_missing_blob_is_not_found_and_leaves_no_file(store: BlobStore, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        store.get_file("uploads/abc", tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        store.get_tree("jobs/1", tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def test_a_deleted_tree_may_be_deleted_again(store: BlobStore, checkpoint: Path) -> None:
    _publish(store, checkpoint, "jobs/1/step-1")
    _publish(store, checkpoint, "jobs/1/step-2")
    for _ in range(2):
        store.delete_tree("jobs/1/step-1")
    assert not store.exists("jobs/1/step-1")
    assert store.exists("jobs/1/step-2")


def test_a_checkpoint_that_cannot_be_written_whole_is_absent(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_path: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(blobs, "synced", fail)
    store = BlobStore(str(tmp_path / "store"))
    with pytest.raises(OSError, match="No space left"):
        _publish(store, checkpoint, "jobs/1/step-1")
    assert not store.exists("jobs/1/step-1")
    assert _contents(tmp_path / "store") == {}


def test_a_remote_tree_without_its_manifest_is_absent(checkpoint: Path) -> None:
    store = BlobStore(f"memory://{uuid.uuid4().hex}")
    store.put_file(checkpoint / "0.pt", "jobs/1/step-1/0.pt")
    assert not store.exists("jobs/1/step-1")
    _publish(store, checkpoint, "jobs/1/step-1")
    assert store.exists("jobs/1/step-1")


def test_another_tree_under_the_same_key_is_replaced(
    store: BlobStore, checkpoint: Path, tmp_path: Path
) -> None:
    """After a restore of the database, the number of an attempt is used again."""
    key = "jobs/0198/1/step-00000050"
    _publish(store, checkpoint, key)
    other = tmp_path / "other"
    other.mkdir()
    _written(other, {"weights": b"others"})
    _publish(store, other, key)
    store.get_tree(key, tmp_path / "resume")
    assert _contents(tmp_path / "resume") == _contents(other)


def test_files_are_found_below_a_key(store: BlobStore, checkpoint: Path) -> None:
    assert store.find("jobs/1") == []
    _publish(store, checkpoint, "jobs/1/1/step-1")
    _publish(store, checkpoint, "jobs/10/1/step-1")
    for content in (b"first", b"second"):
        store.write("jobs/1/1/step-1/note.json", content)
    names = ("0.pt", "empty", "manifest.json", "note.json")
    assert store.find("jobs/1") == [f"jobs/1/1/step-1/{name}" for name in names]
    assert store.read("jobs/1/1/step-1/note.json") == b"second"


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../outside", "a/../../b", "a//b", "a/", ".hidden", "a/.b", "a\n"]
)
def test_a_key_cannot_lead_out_of_the_store(store: BlobStore, key: str) -> None:
    with pytest.raises(ValueError, match="is not a key"):
        store.exists(key)


def test_a_location_names_folder_or_bucket(tmp_path: Path) -> None:
    assert BlobStore(str(tmp_path)).location("uploads/a") == f"{tmp_path}/uploads/a"
    assert BlobStore(f"file://{tmp_path}").location("uploads/a") == f"{tmp_path}/uploads/a"
    assert BlobStore("memory://bucket/prefix").location("a") == "memory:///bucket/prefix/a"


def test_a_relative_folder_is_refused() -> None:
    with pytest.raises(ValueError, match="absolute folder"):
        BlobStore("store")


def test_the_check_of_a_writable_store_leaves_no_file(
    tmp_path: Path,
) -> None:
    local, remote = BlobStore(str(tmp_path / "store")), BlobStore(f"memory://{tmp_path.name}")
    assert local.trouble() == f"{tmp_path}/store cannot be written: No such file or directory"
    local.create()
    assert (local.trouble(), remote.trouble()) == ("", "")
    assert list((tmp_path / "store").iterdir()) == []
