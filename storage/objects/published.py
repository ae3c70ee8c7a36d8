"""Notes in the store, beside the files of each published checkpoint, with the contents of its row.

Database and store are backed up and lost separately. A note restores a missing row exactly, also
after the loss of the node that wrote the checkpoint.

Not here: the rows (``storage.attempts.checkpoints``), and their comparison with the store
(``worker.upload.reconciling``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Annotated, Final, NamedTuple

import structlog
from pydantic import AfterValidator, BaseModel, ValidationError

from lockstep.domain.life.attempt import MANIFEST
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.objects.unpublished import NOTE

log = structlog.get_logger(__name__)

_TREE: Final = re.compile(r"jobs/[^/]+/[0-9]+/[^/]+")


def _finite(value: float | None) -> float | None:
    # No database compares NaN as the others do, and it is never best anyway.
    return value if value is not None and math.isfinite(value) else None


class Note(BaseModel, frozen=True):
    """A checkpoint as it was published."""

    attempt: int
    step: int
    bytes: int
    sha256: str
    """Of its manifest."""
    final: bool
    value: Annotated[float | None, AfterValidator(_finite)]
    """Of the metric that ``keep_best`` names, where its step measured a finite one."""


class StoredCheckpoint(NamedTuple):
    """A whole checkpoint in the store."""

    location: str
    noted: bool
    """It has a note."""


def write_note(blobs: BlobStore, location: str, note: Note) -> None:
    """Note beside its files that a checkpoint was published. Writing it again changes nothing."""
    blobs.write(f"{location}/{NOTE}", note.model_dump_json().encode())


def read_note(blobs: BlobStore, location: str) -> Note | None:
    """Return a checkpoint's note; None where there is none that can be read."""
    try:
        return Note.model_validate_json(blobs.read(f"{location}/{NOTE}"))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        log.warning(
            "the publication record of a checkpoint cannot be read",
            location=location,
            error=error.errors()[0]["msg"],
        )
        return None


def trees(blobs: BlobStore, job_id: str) -> dict[str, StoredCheckpoint]:
    """Return the whole checkpoints of a job that are in the store, by location."""
    return {tree.location: tree for tree in _trees(set(blobs.find(f"jobs/{job_id}")))}


def _trees(keys: set[str]) -> Iterator[StoredCheckpoint]:
    for key in sorted(keys):
        location = key.removesuffix(f"/{MANIFEST}")
        if location != key and _TREE.fullmatch(location):
            yield StoredCheckpoint(location, f"{location}/{NOTE}" in keys)
