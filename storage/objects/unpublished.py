"""Checkpoint in a job's folder, read while it is copied into the store.

The manifest decides: the folder must have exactly its files, all of them regular, and the copy of
each must have the digest that the manifest gives. A copy is read-only from its first byte on.

Not here: the store (``storage.objects.blobs``), and reads of a job's files (``system.untrusted``).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import BinaryIO, Final

from lockstep.domain import limits
from lockstep.domain.life.attempt import MANIFEST
from lockstep.domain.life.manifest import Manifest, ManifestError, ManifestFile, read_manifest
from lockstep.system.beneath import UnsafeFileError
from lockstep.system.untrusted import Untrusted

NOTE: Final = "published.json"
"""File that the store adds to a published checkpoint."""
_PIECE_BYTES: Final = 1024 * 1024


class UnsafeCheckpointError(Exception):
    """The folder is no checkpoint that may be kept. The message is a clause with the file."""


def manifest_in(files: Untrusted, folder: str, sha256: str) -> tuple[bytes, Manifest]:
    """Return the text of a checkpoint's manifest, and the manifest.

    Raises
    ------
    UnsafeCheckpointError
        If it is not the reported one, or the folder has something that it does not list.
    """
    with _refused(folder):
        text = files.read(f"{folder}/{MANIFEST}", most=limits.MANIFEST_BYTES_MAX)
        if text is None:
            raise UnsafeCheckpointError(f"{MANIFEST} is missing")
        if hashlib.sha256(text).hexdigest() != sha256:
            raise UnsafeCheckpointError(f"{MANIFEST} differs from the reported one")
        try:
            manifest = read_manifest(text)
        except ManifestError as error:
            raise UnsafeCheckpointError(f"{MANIFEST} {error}") from None
        names = {entry.name for entry in files.names(folder, most=limits.CHECKPOINT_FILES_MAX + 1)}
    for name in sorted(names - manifest.files.keys() - {MANIFEST}):
        raise UnsafeCheckpointError(f"{name} is not in {MANIFEST}")
    for name in {MANIFEST, NOTE} & manifest.files.keys():
        raise UnsafeCheckpointError(f"{name} is a name of the store's own")
    return text, manifest


def copy_checked(files: Untrusted, name: str, target: Path, expected: ManifestFile) -> None:
    """Clone or copy one file, and compare the copy with the manifest.

    Raises
    ------
    UnsafeCheckpointError
    """
    with _refused(name.rpartition("/")[0]):
        found = files.copy(name, target, most=expected.bytes)
    _compare(target.name, *found, expected)


def send_checked(files: Untrusted, name: str, sink: BinaryIO, expected: ManifestFile) -> None:
    """Send one file in pieces, and compare what was sent with the manifest.

    Raises
    ------
    UnsafeCheckpointError
    """
    with _refused(name.rpartition("/")[0]):
        source = files.open(name)
    digest, size = hashlib.sha256(), 0
    with source:
        while size <= expected.bytes and (piece := source.read(_PIECE_BYTES)):
            size += len(piece)
            digest.update(piece)
            sink.write(piece)
    _compare(name.rpartition("/")[2], size, digest.hexdigest(), expected)


def write_published(path: Path, text: bytes) -> None:
    """Write a new read-only file, and sync it to the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
    with FileIO(descriptor, "w") as file:
        file.write(text)
        os.fsync(descriptor)


def synced(path: Path) -> None:
    """Sync a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _compare(name: str, size: int, sha256: str, expected: ManifestFile) -> None:
    if size != expected.bytes:
        raise UnsafeCheckpointError(
            f"{name} has another size than the {expected.bytes} bytes in {MANIFEST}"
        )
    if sha256 != expected.sha256:
        raise UnsafeCheckpointError(f"{name} was changed after it was written: its SHA-256 differs")


@contextlib.contextmanager
def _refused(folder: str) -> Iterator[None]:
    """Name what is wrong with a job's file."""
    try:
        yield
    except UnsafeFileError as error:
        clause = str(error).removeprefix(f"{folder}/")
        raise UnsafeCheckpointError(f"{clause}; save a regular file") from None
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UnsafeCheckpointError(f"{Path(str(error.filename)).name} is missing") from None
