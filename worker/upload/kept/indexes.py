"""Indexes in the store, beside the contents, with the rows of each changed round.

Database and store are backed up and lost separately. After a restore of the database, an index that
is newer than the rows restores them exactly, also after the loss of the node that wrote it.

Not here: the rows (``storage.attempts.kept_files``).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import structlog
from pydantic import BaseModel, ValidationError

from lockstep.storage.attempts.kept_files import KeptFile, KeptSet
from lockstep.storage.objects.blobs import FILES, BlobStore

log = structlog.get_logger(__name__)

NAME: Final = "index.json"


class KeptIndex(BaseModel, frozen=True):
    """The files of one node rank after a round."""

    node_rank: int
    revision: int
    files: list[KeptFile]


def folder_of(job_id: str, attempt: int, assignment_id: str) -> str:
    """Return the folder in the store in which no other assignment writes."""
    return f"{FILES}/{job_id}/{attempt}/{assignment_id}"


def write(blobs: BlobStore, folder: str, node_rank: int, kept: KeptSet) -> None:
    """Write the index of an assignment. A failure is logged: it is missed only after a restore."""
    index = KeptIndex(node_rank=node_rank, revision=kept.revision, files=list(kept.files.values()))
    try:
        blobs.write(f"{folder}/{NAME}", index.model_dump_json().encode())
    except Exception as error:  # noqa: BLE001 - a remote store raises its library's exceptions
        log.warning("writing the index of kept files failed", folder=folder, error=repr(error))


def read(blobs: BlobStore, stored: Collection[str]) -> list[KeptIndex]:
    """Return the indexes of all node ranks. ``stored`` are the keys of the job's contents."""
    found = [_read(blobs, key) for key in stored if key.endswith(f"/{NAME}")]
    return [index for index in found if index is not None]


def newer(found: Collection[KeptIndex], node_rank: int, kept: KeptSet) -> KeptIndex | None:
    """Return the newest index of a node rank, if it is newer than the rows."""
    own = [index for index in found if index.node_rank == node_rank]
    newest = max(own, key=lambda index: index.revision, default=None)
    return None if newest is None or newest.revision <= kept.revision else newest


def _read(blobs: BlobStore, key: str) -> KeptIndex | None:
    try:
        return KeptIndex.model_validate_json(blobs.read(key))
    except (FileNotFoundError, ValidationError) as error:
        log.warning("an index of kept files cannot be read", key=key, error=repr(error))
        return None
