"""Kept files of earlier attempts, brought to a node before the next attempt starts.

Its last act is ``kept.json``: with it all is done, without it all is done again.

Not here: storing them (``worker.upload.kept.rounds``).
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog

from lockstep.domain.life.attempt import FileStamp, KeptMemory
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.training.memory import in_words
from lockstep.storage.attempts import events, kept_files
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.attempts.kept_files import KeptFile, KeptSet, Round
from lockstep.storage.db.database import Database
from lockstep.storage.objects.blobs import FILES, BlobStore
from lockstep.system.entries import entry_of
from lockstep.worker.folders import Folder
from lockstep.worker.upload.kept import indexes, scanning
from lockstep.worker.upload.kept.indexes import KeptIndex
from lockstep.worker.upload.kept.scanning import readable

log = structlog.get_logger(__name__)

DISK_FREE_BYTES_MIN: Final = 64 * 2**20
"""Left on the node's disk by the files that are brought."""
NAMED_MAX: Final = 5


class _Brought(NamedTuple):
    files: dict[str, tuple[FileStamp | None, str]]
    """As in ``KeptMemory.sent``."""
    missing: list[str]


def bring(
    folder: Folder, claim: Claim, spec: JobSpec, database: Database, blobs: BlobStore
) -> None:
    """Put the files of earlier attempts into the folder, and note what is there. Repeatable.

    Raises
    ------
    OSError
        If the disk has no room, or fails, or if the store is empty.
    Exception
        From the store's library, if the store does not answer.
    """
    if folder.kept_memory() is not None:
        return
    code = scanning.stamps(scanning.scan(folder.files, spec).names)
    scanning.make_output(folder.files, spec)
    sent: dict[str, tuple[FileStamp | None, str]] = {}
    kept = None
    if claim.attempt_number > 1:
        stored = blobs.find(f"{FILES}/{claim.job_id}")
        found = indexes.read(blobs, stored)
        kept = _agreed(claim, stored, found, database, blobs)
        if spec.outputs.restore and kept.files:
            brought = _fetch_all(folder, spec, kept, blobs)
            _report(claim, kept, brought.missing, database)
            sent = brought.files
        _tidy(claim, stored, found, database, blobs)
    if spec.continues is not None and spec.outputs.restore and not (kept and kept.revision):
        _inherit(folder, claim, spec, database, blobs)
    folder.write_kept_memory(KeptMemory(code=code, sent=sent))


def _inherit(
    folder: Folder, claim: Claim, spec: JobSpec, database: Database, blobs: BlobStore
) -> None:
    """Bring the files of the job that this one continues. They are stored again as its own."""
    kept = None
    for former in claim.former:
        with database.read_jobs() as session:
            kept = kept_files.read(session, former, claim.node_rank)
        if kept.files:
            brought = _fetch_all(folder, spec, kept, blobs)
            _report(claim, kept, brought.missing, database, of=f" of job {former}")
        if kept.revision:
            break
    if claim.node_rank > 0:
        return
    if spec.kind == "train" and not (claim.published or claim.inherited):
        what = "has no checkpoint, so training begins at step 0"
        _say(claim, f"Job {spec.continues} {what}.", {}, database)
    if spec.kind == "script" and not (kept and kept.files):
        why = "has no files any more" if kept and kept.revision else "kept no files"
        _say(claim, f"Job {spec.continues} {why}, so the script begins without them.", {}, database)


def _agreed(
    claim: Claim,
    stored: Collection[str],
    found: Collection[KeptIndex],
    database: Database,
    blobs: BlobStore,
) -> KeptSet:
    """Return the rows, after they agree with a newer index in the store."""
    with database.read_jobs() as session:
        kept = kept_files.read(session, claim.job_id, claim.node_rank)
    index = indexes.newer(found, claim.node_rank, kept)
    if index is not None:
        put = {file.path: file for file in index.files}
        gone = [path for path in kept.files if path not in put]
        changes = Round(
            kept.revision, index.files, gone, complete=True, age_seconds=0.0, above=index.revision
        )
        with database.jobs() as session:
            kept_files.publish(session, claim.assignment_id, claim.token, changes)
            kept = kept_files.read(session, claim.job_id, claim.node_rank)
    if kept.files:
        if not stored:
            raise FileNotFoundError(
                f"the store has none of the job's {_files(len(kept.files))}; it may not be "
                f"mounted. To go on without them: lockstep files rm {claim.job_id} '**'"
            )
        folder = indexes.folder_of(claim.job_id, claim.attempt_number, claim.assignment_id)
        indexes.write(blobs, folder, claim.node_rank, kept)
    return kept


def _fetch_all(folder: Folder, spec: JobSpec, kept: KeptSet, blobs: BlobStore) -> _Brought:
    total = sum(file.bytes for file in kept.files.values())
    free = shutil.disk_usage(folder.path).free
    if free < total + DISK_FREE_BYTES_MIN:
        raise OSError(
            errno.ENOSPC,
            f"the disk has {in_words(free)} free; the kept files of earlier attempts have "
            f"{in_words(total)}",
            str(folder.path),
        )
    brought = _Brought({}, [])
    for path, file in kept.files.items():
        target = folder.file(scanning.source_of(folder.files, spec, path))
        stamp = _fetch(file, _made_way(folder.path, target), blobs)
        brought.files[path] = stamp, file.sha256
        if stamp is None:
            brought.missing.append(path)
    return brought


def _made_way(top: Path, target: Path) -> Path:
    """Return the path. Files and links of the code that are in its way are removed."""
    way = top
    for part in target.relative_to(top).parts[:-1]:
        way /= part
        if way.is_symlink() or (way.exists() and not way.is_dir()):
            way.unlink()
        way.mkdir(exist_ok=True)
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    return target


def _fetch(file: KeptFile, target: Path, blobs: BlobStore) -> FileStamp | None:
    """Fetch one file; None if its contents are missing or damaged."""
    try:
        blobs.get_file(file.location, target)
    except FileNotFoundError:
        return None
    with target.open("rb") as opened:
        if hashlib.file_digest(opened, "sha256").hexdigest() != file.sha256:
            target.unlink()
            return None
    target.chmod(0o700 if file.executable else 0o600)
    os.utime(target, (file.modified_at, file.modified_at))
    found = entry_of(target.name, target.lstat())
    return found.bytes, found.modified_ns, found.changed_ns, found.inode


def _report(
    claim: Claim, kept: KeptSet, missing: list[str], database: Database, *, of: str = ""
) -> None:
    count = len(kept.files) - len(missing)
    total = sum(file.bytes for path, file in kept.files.items() if path not in missing)
    message = f"Restored {_files(count)}{of} ({in_words(total)})"
    last = kept.last
    if last is not None and not last.complete and last.ended_at is not None:
        age = max(0.0, last.ended_at - last.as_of)
        message += (
            f" as they were {age:,.0f} s before the end of attempt {last.attempt}; what it wrote "
            "later was not stored"
        )
    if missing:
        named = ", ".join(map(readable, missing[:NAMED_MAX]))
        message += f". The store no longer has {_files(len(missing))}: {named}"
    data = {"files": count, "bytes": total, "missing": missing[:NAMED_MAX]}
    _say(claim, f"{message}.", data, database)


def _say(claim: Claim, message: str, data: dict[str, Any], database: Database) -> None:
    with database.jobs() as session:
        events.add(
            session,
            job_id=claim.job_id,
            attempt=claim.attempt_number,
            kind="files_restored",
            message=message,
            actor=f"node:{claim.node_name}",
            data=data,
            origin=f"{claim.assignment_id}:files_restored",
        )


def _tidy(
    claim: Claim,
    stored: Collection[str],
    found: Collection[KeptIndex],
    database: Database,
    blobs: BlobStore,
) -> None:
    """Delete contents of ended attempts that no row names: those nodes died before their commit.

    A row that a restore of the database lost comes back from an index, on its own node.
    """
    if claim.node_rank > 0:
        return
    with database.read_jobs() as session:
        named = {each.file.location for each in kept_files.of_job(session, claim.job_id)}
    others = (index.files for index in found if index.node_rank != claim.node_rank)
    named.update(file.location for files in others for file in files)
    # The other nodes may not have read the indexes of the attempt before.
    former = [
        key
        for key in stored
        if int(key.split("/")[2]) < claim.attempt_number - key.endswith(f"/{indexes.NAME}")
    ]
    try:
        blobs.delete_files(key for key in former if key not in named)
    except Exception as error:  # noqa: BLE001 - they take space only, and go with the job
        log.warning("contents without a row stay in the store", error=repr(error))


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"
