"""Download of the checkpoint to resume from: the newest whole one.

A checkpoint that was damaged in the store or in transit differs from its manifest, or its manifest
differs from the published one. It is fetched once more; if it is still damaged, the previous one is
used, with an event of the attempt. The engine verifies the files again, but has no alternative.

Not here: the published checkpoints (``storage.attempts.checkpoints``), and their presence in the
store (``worker.upload.reconciling``).
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import EngineEvent
from lockstep.domain.life.manifest import ManifestError, read_manifest
from lockstep.storage.attempts.attempts import Published
from lockstep.storage.objects.blobs import BlobStore
from lockstep.worker.folders import Folder

log = structlog.get_logger(__name__)

FETCHES: Final = 2
"""Fetches of one checkpoint: damage in transit does not repeat."""


class NoIntactCheckpointError(OSError):
    """There are checkpoints, and each of them is damaged.

    A fresh start in silence would hide that.
    """


def bring(
    folder: Folder,
    published: Sequence[Published],
    blobs: BlobStore,
    others: Sequence[Published] = (),
) -> None:
    """Put the newest whole checkpoint at ``resume``.

    Nothing where none was ever published, or one is there already.

    Parameters
    ----------
    folder : Folder
        The attempt's.
    published : sequence of Published
        Newest first.
    blobs : BlobStore
    others : sequence of Published
        Tried, newest first, where none of ``published`` is whole.

    Raises
    ------
    NoIntactCheckpointError
    OSError
        If the disk or the store refuses; that may pass.
    """
    target = folder.file(attempt.RESUME)
    if target.exists() or not published:
        return
    partial = target.with_name(f"{target.name}.partial")
    damaged: list[tuple[Published, str]] = []
    for checkpoint in (*published, *others):
        damage = _fetched(checkpoint, partial, blobs)
        if not damage:
            _write_events(folder, damaged)
            partial.rename(target)
            return
        log.warning(
            "a checkpoint is damaged",
            assignment=folder.assignment_id,
            step=checkpoint.step,
            why=damage,
        )
        damaged.append((checkpoint, damage))
    unusable = "; ".join(f"that of step {checkpoint.step}: {why}" for checkpoint, why in damaged)
    raise NoIntactCheckpointError(f"no published checkpoint is intact; {unusable}")


def _fetched(checkpoint: Published, partial: Path, blobs: BlobStore) -> str:
    """Fetch a checkpoint. Return its damage, empty if it is whole."""
    damage = ""
    for _ in range(FETCHES):
        shutil.rmtree(partial, ignore_errors=True)
        try:
            blobs.get_tree(checkpoint.location, partial)
        except FileNotFoundError as error:
            return str(error)
        damage = damage_of(partial, checkpoint.sha256)
        if not damage:
            break
    return damage


def damage_of(folder: Path, manifest_sha256: str) -> str:
    """Return the damage of a fetched checkpoint in words; empty if it equals the published one."""
    try:
        text = (folder / attempt.MANIFEST).read_bytes()
        if hashlib.sha256(text).hexdigest() != manifest_sha256:
            return f"{attempt.MANIFEST} differs from the published one: its SHA-256 differs"
        manifest = read_manifest(text)
    except FileNotFoundError:
        return f"{attempt.MANIFEST} is missing"
    except ManifestError as error:
        return f"{attempt.MANIFEST} {error}"
    for name, expected in manifest.files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        size = path.stat().st_size
        if size != expected.bytes:
            return f"{name} has {size} bytes; the manifest has {expected.bytes}"
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != expected.sha256:
                return f"{name} was changed after it was written: its SHA-256 differs"
    return ""


def _write_events(folder: Folder, damaged: Sequence[tuple[Published, str]]) -> None:
    """Lines for the spool of events, which the launcher and rank 0 continue."""
    lines = []
    for checkpoint, why in damaged:
        data = {"folder": f"of step {checkpoint.step}", "why": why}
        event = EngineEvent(kind="checkpoint_skipped", time=time.time(), data=data)
        lines.append(event.model_dump_json() + "\n")
    # Rewritten, because preparation is repeated after a failure; there is no other writer before
    # the launch.
    folder.file(attempt.EVENTS).write_text("".join(lines), encoding="utf-8")
