"""Code archives in the blob store, each under the digest of its bytes, with notes about it beside it.

Equal bytes have one name, so keeping an archive twice changes nothing and needs no lock.

Not here: what may be kept (``api.jobs.archives``).
"""

from __future__ import annotations

import errno
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lockstep.api.jobs.archives import Archive
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.storage.objects.blobs import BlobStore

REMEMBERED_MAX: Final = 1_000
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
RETRY_SECONDS: Final = 60
"""A store that is read-only or not mounted waits for a person."""


def archive_key(sha256: str) -> str:
    """Where an archive is in the blob store."""
    return f"uploads/{sha256}.tar.gz"


def notes_key(sha256: str) -> str:
    """Where its ``Archive`` is. Written first, so that an archive without notes does not exist."""
    return f"uploads/{sha256}.json"


class Uploads:
    """The archives that jobs may name. Threads share it."""

    def __init__(self, blobs: BlobStore):
        self._blobs = blobs
        self._known: OrderedDict[str, Archive] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, sha256: str) -> Archive | None:
        """What is known about an archive; None when it was never kept, or is gone."""
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
            archive = Archive.model_validate_json(notes.read_bytes())
        self._remember(archive)
        return archive

    def keep(self, path: Path, archive: Archive) -> None:
        """Put an examined archive into the store."""
        with tempfile.TemporaryDirectory(prefix="lockstep-notes-") as folder:
            notes = Path(folder) / "notes.json"
            notes.write_text(archive.model_dump_json())
            with _translated("written"):
                self._blobs.put_file(notes, notes_key(archive.sha256))
                self._blobs.put_file(path, archive_key(archive.sha256))
        self._remember(archive)

    def _remember(self, archive: Archive) -> None:
        with self._lock:
            self._known[archive.sha256] = archive
            while len(self._known) > REMEMBERED_MAX:
                self._known.popitem(last=False)


@contextmanager
def _translated(done: str) -> Iterator[None]:
    """Translate errors of the store. A full disk passes: the route reports it, for the api's own disk too.

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
            next_step="check that the folder or bucket of LOCKSTEP_STORE is there and can be written, then send it again",
            retry_after_seconds=RETRY_SECONDS,
        ) from error
