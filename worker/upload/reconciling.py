"""Reconciliation of the rows of a job's checkpoints with the store.

They differ after a restore of the database from a backup. Retention has since deleted the files of
checkpoints that have rows again, and later checkpoints have no row. Notes beside the files
(``storage.objects.published``) mark published checkpoints.

No row is deleted unless a whole checkpoint of the job is in the store: a store that is not mounted
looks empty.

Not here: download and verification of a checkpoint (``worker.launch.resuming``).
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import NamedTuple

import structlog

from lockstep.domain.life.attempt import MANIFEST
from lockstep.domain.life.manifest import ManifestError, read_manifest
from lockstep.storage.attempts import checkpoints
from lockstep.storage.attempts.attempts import Claim, Published
from lockstep.storage.db.database import Database
from lockstep.storage.objects import published
from lockstep.storage.objects.blobs import BlobStore
from lockstep.worker.upload.stream import Stream

log = structlog.get_logger(__name__)


class Reconciled(NamedTuple):
    """The checkpoints that an attempt may resume from, each list newest first."""

    published: list[Published]
    others: list[Published]
    """Whole checkpoints without a row, for the case that all of ``published`` are damaged. Empty if
    ``published`` is empty."""


def reconcile(database: Database, blobs: BlobStore, stream: Stream) -> Reconciled:
    """Reconcile the rows of the job with the store. May be repeated.

    Raises
    ------
    Exception
        From the store's library, if the store does not answer.
    """
    trees = published.trees(blobs, stream.job_id)
    with database.read_jobs() as session:
        rows = checkpoints.of_job(session, stream.job_id)
    named = {row.location: row for row in rows}
    # The store is asked again: a checkpoint may have been published after the listing.
    gone = [
        row.id
        for row in rows
        if trees and row.location not in trees and not blobs.exists(row.location)
    ]
    notes = [
        (location, note)
        for location, tree in trees.items()
        if tree.noted
        and location not in named
        and (note := published.read_note(blobs, location)) is not None
    ]
    if gone or notes:
        with database.jobs() as session:
            checkpoints.reconcile(
                session, stream.assignment_id, stream.token, found=notes, gone=gone
            )
        with database.read_jobs() as session:
            rows = checkpoints.of_job(session, stream.job_id)
    kept = [Published(row.step, row.location, row.sha256) for row in rows]
    unknown = trees.keys() - {row.location for row in rows}
    others = (
        [other for location in unknown if (other := _unpublished(blobs, location)) is not None]
        if kept
        else []
    )
    return Reconciled(
        kept,
        sorted(others, reverse=True, key=lambda other: (_attempt_of(other.location), other.step)),
    )


def reconciled(claim: Claim, database: Database, blobs: BlobStore) -> tuple[Claim, list[Published]]:
    """Reconcile, and return the claim with the published checkpoints, and the others.

    Their files are not verified here.
    """
    stream = Stream(claim.assignment_id, claim.job_id, claim.attempt_number, claim.token)
    try:
        found = reconcile(database, blobs, stream)
    except Exception as error:
        if claim.published:
            raise
        # A job without a checkpoint needs nothing from the store to begin.
        log.warning(
            "the store is not compared with the database",
            assignment=claim.assignment_id,
            error=repr(error),
        )
        return claim, []
    return replace(
        claim, published=found.published, init=None if found.published else claim.init
    ), found.others


def _unpublished(blobs: BlobStore, location: str) -> Published | None:
    try:
        text = blobs.read(f"{location}/{MANIFEST}")
        return Published(read_manifest(text).step, location, hashlib.sha256(text).hexdigest())
    except (FileNotFoundError, ManifestError):
        return None


def _attempt_of(location: str) -> int:
    return int(location.split("/")[2])
