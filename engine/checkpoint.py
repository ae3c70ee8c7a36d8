"""Checkpoints: whole or not there, and checked before they are used.

1. Everything is written into a temporary folder beside its final place (the same file system), each file synced.
2. ``manifest.json``, with size and SHA-256 of every file, is written and synced last.
3. The folder is renamed to ``step-00000050`` and its parent synced: from here on the checkpoint is durable.
4. Only then are older ones pruned.

A process that dies at any point leaves the checkpoints before it untouched, and at most a temporary folder that
nobody reads. What was torn or changed afterwards fails its manifest and is refused by name.

``state.pt`` holds ``model``, ``optimizer``, ``step`` (completed optimizer steps), ``identity`` (what the position in
the data depends on) and ``layout`` (what the last bits depend on). The position of the loader and of the schedule is
the step; random draws are seeded from it too (``engine.randomness``), so no generator's state is kept.

Not here: where a checkpoint goes from this node (the agent publishes it), and asynchronous saving (a later version).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from domain.attempt import MANIFEST
from domain.outcomes import Reason
from engine.errors import EngineError

STATE: Final = "state.pt"
FORMAT: Final = 1
_PREFIX: Final = "step-"
_CHUNK_BYTES: Final = 1 << 20


class DamagedCheckpointError(Exception):
    """A checkpoint's files are not what its manifest says. The message names the file."""


@dataclass(frozen=True)
class Saved:
    """A durable checkpoint."""

    step: int
    folder: Path
    size_bytes: int
    sha256: str
    """Of the manifest, which has the digests of all other files."""


def folder_name(step: int) -> str:
    """``step-00000050``: sorts by step."""
    return f"{_PREFIX}{step:08d}"


def save(parent: Path, step: int, state: dict[str, Any], *, keep_last: int) -> Saved:
    """Write a checkpoint of ``step`` below ``parent``, make it durable, and prune to the newest ``keep_last``.

    Raises
    ------
    EngineError
        ``storage``, if the disk is full or broken. Older checkpoints are untouched then.
    """
    target = parent / folder_name(step)
    temporary = parent / f".{target.name}.{os.getpid()}.tmp"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _remove(temporary)
        temporary.mkdir()
        saved = _write(temporary, target, step, state)
        _sync_folder(temporary)
        _remove(target)  # Left by an earlier run into the same folder, which this one goes on from.
        temporary.rename(target)
        _sync_folder(parent)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise EngineError(
            Reason.STORAGE, f"the checkpoint of step {step} could not be written to {parent}: {error}"
        ) from error
    for old in list(complete(parent))[keep_last:]:
        _remove(old)
    return saved


def complete(parent: Path) -> Iterator[Path]:
    """Checkpoint folders below ``parent``, newest first. Temporary ones have another name."""
    if parent.is_dir():
        yield from sorted((path for path in parent.glob(f"{_PREFIX}*") if path.is_dir()), reverse=True)


def verify(folder: Path) -> int:
    """Check every file of a checkpoint against its manifest; returns its step.

    Raises
    ------
    DamagedCheckpointError
        If the manifest or a file is missing, torn or changed.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        files = dict(manifest["files"])
        step = int(manifest["step"])
    except FileNotFoundError:
        raise DamagedCheckpointError(f"{MANIFEST} is missing, so the checkpoint was never finished") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedCheckpointError(f"{MANIFEST} cannot be read ({error})") from None
    if manifest.get("format") != FORMAT:
        raise DamagedCheckpointError(f"{MANIFEST} has format {manifest.get('format')!r}; this version reads {FORMAT}")
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            raise DamagedCheckpointError(f"{name} is missing")
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise DamagedCheckpointError(f"{name} has {size} bytes, but was written with {expected['bytes']}")
        if _sha256(path) != expected["sha256"]:
            raise DamagedCheckpointError(f"{name} has changed since it was written: its SHA-256 differs")
    return step


def load(folder: Path) -> dict[str, Any]:
    """The state in a checkpoint that was verified, on the CPU. Reads tensors and plain values only, runs no code."""
    state: dict[str, Any] = torch.load(folder / STATE, map_location="cpu", weights_only=True)
    return state


def _write(folder: Path, target: Path, step: int, state: dict[str, Any]) -> Saved:
    path = folder / STATE
    with path.open("wb") as file:
        torch.save({**state, "step": step}, file)
        file.flush()
        os.fsync(file.fileno())
    size = path.stat().st_size
    manifest = {"format": FORMAT, "step": step, "files": {STATE: {"bytes": size, "sha256": _sha256(path)}}}
    text = json.dumps(manifest, indent=1).encode()
    with (folder / MANIFEST).open("wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return Saved(step, target, size + len(text), hashlib.sha256(text).hexdigest())


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    """Make renames inside ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(folder: Path) -> None:
    """Delete a checkpoint, manifest first: what is left of an interrupted deletion must not look complete."""
    if folder.exists():
        (folder / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(folder)
