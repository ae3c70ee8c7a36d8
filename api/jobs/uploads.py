"""Code archives in the blob store, stored under their SHA-256 together with their metadata.

Equal bytes have the same key. Storing an archive twice changes nothing and needs no lock.

Not here: checking archives (``api.jobs.archives``).
"""

from __future__ import annotations

import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lockstep.api.jobs.archives import StoredArchive
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.storage.objects.blobs import BlobStore
from lockstep.system.files import FULL

REMEMBERED_MAX: Final = 1_000
RETRY_SECONDS: Final = 60
"""Delay before a retry. A store that is read-only or not mounted needs an operator."""


def archive_key(sha256: str) -> str:
    """Return the blob store key of an archive."""
    return f"uploads/{sha256}.tar.gz"


def notes_key(sha256: str) -> str:
    """Return the key of its ``StoredArchive`` metadata, which is stored before the archive itself.

    An archive in the store therefore always has metadata.
    """
    return f"uploads/{sha256}.json"


class Uploads:
    """Archives that jobs may refer to. Thread-safe."""

    def __init__(self, blobs: BlobStore):
        self._blobs = blobs
        self._known: OrderedDict[str, StoredArchive] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, sha256: str) -> StoredArchive | None:
        """Return the metadata of an archive; None if it is not in the store."""
        with _translated("read"):
            if not self._blobs.exists(archive_key(sha256)):
                return None
        with self._lock:
            if sha256 in self._known:
                return self._known[sha256]
        with tempfile.TemporaryDirectory(prefix="lockstep-notes-") as folder:
            notes = Path(folder) / "notes.json"
            with _translated("read"):
                self._blobs.get_file(notes_key(sha256), notes)
            archive = StoredArchive.model_validate_json(notes.read_bytes())
        self._remember(archive)
        return archive

    def keep(self, path: Path, archive: StoredArchive) -> None:
        """Store an archive that passed the check."""
        with tempfile.TemporaryDirectory(prefix="lockstep-notes-") as folder:
            notes = Path(folder) / "notes.json"
            notes.write_text(archive.model_dump_json())
            with _translated("written"):
                self._blobs.put_file(notes, notes_key(archive.sha256))
                self._blobs.put_file(path, archive_key(archive.sha256))
        self._remember(archive)

    def _remember(self, archive: StoredArchive) -> None:
        with self._lock:
            self._known[archive.sha256] = archive
            while len(self._known) > REMEMBERED_MAX:
                self._known.popitem(last=False)


@contextmanager
def _translated(done: str) -> Iterator[None]:
    """Translate errors of the store.

    A full disk passes unchanged: the route reports it, together with the api's own disk.

    Raises
    ------
    LockstepError
        ``UNAVAILABLE`` when the store is missing, read-only, or does not answer.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise
        raise LockstepError(
            ErrorCode.UNAVAILABLE,
            f"the store cannot be {done}: {error.strerror or error}; nothing was kept",
            next_step=(
                "check that the folder or bucket of LOCKSTEP_STORE exists and is writable, then "
                "send it again"
            ),
            retry_after_seconds=RETRY_SECONDS,
        ) from error
