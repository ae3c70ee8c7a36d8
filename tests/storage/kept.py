"""Kept files of jobs as a node stores them, for tests of those who read them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from lockstep.storage.attempts import kept_files
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.attempts.kept_files import KeptFile, Round, RoundResult
from lockstep.storage.db.database import Database
from lockstep.storage.objects.blobs import BlobStore

MODIFIED_AT = 1_795_000_000.0


def store(
    database: Database,
    blobs: BlobStore,
    claim: Claim,
    files: Mapping[str, bytes],
    *,
    revision: int = 0,
) -> None:
    """Store one round of a job's first node."""
    put = []
    for path, content in files.items():
        sha256 = hashlib.sha256(content).hexdigest()
        location = f"files/{claim.job_id}/{sha256}-{revision}"
        blobs.write(location, content)
        put.append(
            KeptFile(path, sha256, len(content), MODIFIED_AT, path.endswith(".sh"), 1, location)
        )
    changes = Round(revision, put, [], complete=False, age_seconds=12.0)
    with database.jobs() as session:
        stored = kept_files.publish(session, claim.assignment_id, claim.token, changes)
        assert stored is RoundResult.YES
