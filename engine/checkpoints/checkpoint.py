"""Checkpoint files: written atomically and verified before use.

1. Everything is written into a temporary folder beside its final path (the same file system), and
each file is synced. The SHA-256 of a file is computed from the bytes before they reach the disk, so
corruption by the disk is detected.
2. ``manifest.json``, with size and SHA-256 of every file, is written and synced last.
3. The folder is renamed to ``step-00000050`` and its parent synced. The checkpoint is now durable.
4. Only then are older checkpoints deleted. Each is renamed first, atomically.

A process that dies at any point leaves earlier checkpoints untouched, and at most folders with a
leading dot, which are never read and which the next run removes (:func:`tidy`). A checkpoint that
was truncated or changed afterwards fails its manifest and is refused by name.

``state.json`` and ``state.safetensors`` hold the state (``engine.checkpoints.contents``): plain
values and tensors, nothing that runs code when it is read. Other files may lie beside them, such as
the exported model.

Not here: writing during training (``engine.checkpoints.saving``), publishing (the agent), retention
(``domain.life.retention``).
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from lockstep.domain.life.attempt import MANIFEST
from lockstep.domain.life.manifest import (
    FORMER_STATE,
    STATE,
    TENSORS,
    Manifest,
    ManifestError,
    ManifestFile,
    ManifestMetric,
    read_manifest,
)
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.life.retention import superseded
from lockstep.domain.training.metrics import from_json, jsonable
from lockstep.engine.checkpoints import contents, tensors
from lockstep.engine.checkpoints.contents import State
from lockstep.engine.checkpoints.streams import Receiver
from lockstep.engine.checkpoints.tensors import Writable
from lockstep.engine.runtime.errors import EngineError

_PREFIX: Final = "step-"
_TEMPORARY: Final = "tmp"
_TRASH: Final = "trash"
_FORMER: Final = "former"
_BUFFER_BYTES: Final = 1 << 20


class DamagedCheckpointError(Exception):
    """The files of a checkpoint differ from its manifest. The message names the file."""


@dataclass(frozen=True)
class Written:
    """One file of a checkpoint, durable."""

    size_bytes: int
    sha256: str


Part = Callable[[Path], Written]
"""Writes one file of a checkpoint and makes it durable."""


@dataclass(frozen=True)
class CheckpointMetric:
    """Metric of a checkpoint, for keeping the best."""

    name: str
    """Of the metric, such as ``eval/loss``."""
    value: float | None
    """None where the step did not measure it."""

    def document(self) -> dict[str, Any]:
        """As it travels in JSON."""
        return {"name": self.name, "value": None if self.value is None else jsonable(self.value)}


@dataclass(frozen=True)
class SavedCheckpoint:
    """A durable checkpoint."""

    step: int
    folder: Path
    size_bytes: int
    sha256: str
    """Of the manifest, which has the digests of all other files."""
    measured: CheckpointMetric | None = None
    seconds: float = 0.0
    """Duration of the save, from the collection of the state; set by ``Saver``."""


def folder_name(step: int) -> str:
    """``step-00000050``."""
    return f"{_PREFIX}{step:08d}"


def save(
    parent: Path,
    step: int,
    state: State,
    *,
    others: Mapping[str, Part] | None = None,
    measured: CheckpointMetric | None = None,
    receiver: Receiver | None = None,
) -> SavedCheckpoint:
    """Write a checkpoint of ``step`` below ``parent`` and make it durable.

    One that is there already is replaced.

    Parameters
    ----------
    parent : Path
    step : int
        Completed optimizer steps.
    state : dict
        Of tensors and plain values, in dicts, lists and tuples.
    others : mapping of str to callable, optional
        More files, by name.
    measured : Measured, optional
    receiver : Receiver, optional
        Of the parts of the state that other ranks hold. It has received all of them at the return,
        also if the checkpoint could not be written.

    Raises
    ------
    EngineError
        ``storage``, if the disk is full or broken. Older checkpoints are untouched then.
    """
    target = parent / folder_name(step)
    temporary = _beside(target, _TEMPORARY)
    found = contents.contents_of({**state, "step": step})
    if receiver is not None:
        receiver.begin()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        parts = {
            TENSORS: hashed(lambda file: tensors.write(file, found.pieces, incoming=receiver)),
            STATE: hashed(lambda file: file.write(found.text())),
            **(others or {}),
        }
        written = {name: write(temporary / name) for name, write in parts.items()}
        manifest = hashed(lambda file: file.write(_manifest(step, written, measured)))(
            temporary / MANIFEST
        )
        _sync_folder(temporary)
        _publish(temporary, target)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if receiver is not None:
            receiver.skip()
        raise EngineError(
            Reason.STORAGE,
            f"the checkpoint of step {step} could not be written to {parent}: {error}",
        ) from error
    size_bytes = manifest.size_bytes + sum(file.size_bytes for file in written.values())
    return SavedCheckpoint(step, target, size_bytes, manifest.sha256, measured)


def prune(parent: Path, newest: SavedCheckpoint, *, keep_last: int) -> None:
    """Delete the checkpoints that ``newest`` replaces.

    The newest ``keep_last`` and the best by the same metric stay.

    Checkpoints with a later step are deleted too: a run saves at an earlier step only if they are
    damaged.
    """
    metric = newest.measured.name if newest.measured else None
    earlier = [folder for folder in complete(parent) if _step_of(folder) <= newest.step]
    old = superseded(earlier, keep_last, lambda folder: _value(folder, metric))
    for folder in complete(parent):
        if folder in old or folder not in earlier:
            _remove(folder)


def tidy(parent: Path) -> None:
    """Remove the temporary folders of a run that was killed.

    Only valid while no process writes below ``parent``.
    """
    if not parent.is_dir():
        return
    for path in parent.glob(f".{_PREFIX}*.{_FORMER}"):
        target = parent / path.name[1:].split(".")[0]
        if target.exists():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.rename(target)  # Killed between the two renames of a replacement.
    for kind in (_TEMPORARY, _TRASH):
        for path in parent.glob(f".{_PREFIX}*.{kind}"):
            shutil.rmtree(path, ignore_errors=True)


def complete(parent: Path) -> Iterator[Path]:
    """Checkpoint folders below ``parent``, newest first.

    Those that are not finished have another name.
    """
    if parent.is_dir():
        found = (
            path for path in parent.glob(f"{_PREFIX}*") if path.is_dir() and _step_of(path) >= 0
        )
        yield from sorted(found, key=_step_of, reverse=True)


def measured_of(folder: Path) -> CheckpointMetric | None:
    """Return the metric in a checkpoint's manifest; None if there is none or it cannot be read."""
    try:
        metric = read_manifest((folder / MANIFEST).read_bytes()).metric
    except (OSError, ManifestError):
        return None
    if metric is None:
        return None
    return CheckpointMetric(metric.name, None if metric.value is None else from_json(metric.value))


def verify(folder: Path) -> int:
    """Check every file of a checkpoint against its manifest; returns its step.

    Raises
    ------
    DamagedCheckpointError
        If the manifest or a file is missing, torn or changed.
    """
    try:
        manifest = read_manifest((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise DamagedCheckpointError(
            f"{MANIFEST} is missing, so the checkpoint is incomplete"
        ) from None
    except ManifestError as error:
        raise DamagedCheckpointError(f"{MANIFEST} {error}") from None
    for name in () if FORMER_STATE in manifest.files else (STATE, TENSORS):
        if name not in manifest.files:
            raise DamagedCheckpointError(f"{MANIFEST} does not name {name}")
    for name, expected in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise DamagedCheckpointError(f"{name} is missing")
        size = path.stat().st_size
        if size != expected.bytes:
            raise DamagedCheckpointError(
                f"{name} has {size} bytes; the manifest has {expected.bytes}"
            )
        if digest_of(path).sha256 != expected.sha256:
            raise DamagedCheckpointError(
                f"{name} was changed after it was written: its SHA-256 differs"
            )
    return manifest.step


def damage_of(folder: Path) -> str:
    """Return the error of :func:`verify` for a checkpoint; empty if it is intact."""
    try:
        verify(folder)
    except DamagedCheckpointError as error:
        return str(error)
    return ""


def load(folder: Path) -> State:
    """The state in a checkpoint that was verified, on the CPU.

    Reads tensors and plain values only, runs no code. The tensors are views of the file
    (``engine.checkpoints.tensors.views``).

    Raises
    ------
    DamagedCheckpointError
        The files are those that were written, but cannot be read.
    """
    try:
        return contents.read(folder)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - the libraries raise whatever they stumble over
        first_line = (str(error).splitlines() or [""])[0]
        raise DamagedCheckpointError(
            f"its state cannot be read: {type(error).__name__}: {first_line}"
        ) from None


def hashed(write: Callable[[Writable], object]) -> Part:
    """A part that ``write`` streams.

    Its digest is made on the way, without reading the file again.
    """

    def part(path: Path) -> Written:
        with path.open("wb", buffering=_BUFFER_BYTES) as file:
            stream = _Hashing(file)
            write(stream)
            file.flush()
            os.fsync(file.fileno())
        return Written(stream.size_bytes, stream.sha256())

    return part


def digest_of(path: Path) -> Written:
    """Size and SHA-256 of a file as it lies on the disk."""
    digest = hashlib.sha256()
    size_bytes = 0
    with path.open("rb") as file:
        while chunk := file.read(_BUFFER_BYTES):
            digest.update(chunk)
            size_bytes += len(chunk)
    return Written(size_bytes, digest.hexdigest())


class _Hashing:
    """Binary stream that hashes the bytes that are written to it."""

    def __init__(self, file: BinaryIO):
        self._file, self._digest = file, hashlib.sha256()
        self.size_bytes = 0

    def write(self, block: bytes | memoryview) -> int:
        # Both release the interpreter for large blocks, so that the training thread continues.
        self._digest.update(block)
        self._file.write(block)
        size = memoryview(block).nbytes
        self.size_bytes += size
        return size

    def sha256(self) -> str:
        return self._digest.hexdigest()


def _manifest(step: int, files: Mapping[str, Written], measured: CheckpointMetric | None) -> bytes:
    manifest = Manifest(
        step=step,
        files={
            name: ManifestFile(bytes=file.size_bytes, sha256=file.sha256)
            for name, file in files.items()
        },
        metric=None if measured is None else ManifestMetric.model_validate(measured.document()),
    )
    return manifest.model_dump_json(indent=1).encode()


def _value(folder: Path, metric: str | None) -> float | None:
    found = measured_of(folder)
    return found.value if found is not None and found.name == metric else None


def _step_of(folder: Path) -> int:
    """Return the step in a folder's name, or -1.

    Names alone sort wrongly from the ninth digit on.
    """
    digits = folder.name.removeprefix(_PREFIX)
    return int(digits) if digits.isdecimal() else -1


def _beside(target: Path, kind: str) -> Path:
    return target.with_name(f".{target.name}.{kind}")


def _publish(temporary: Path, target: Path) -> None:
    """Give a finished folder its name, for good."""
    former = _beside(target, _FORMER)
    if target.exists():
        # Of an earlier run into the same folder, and maybe the only one that is whole: it stays
        # until this one is there.
        shutil.rmtree(former, ignore_errors=True)
        target.rename(former)
    temporary.rename(target)
    _sync_folder(target.parent)
    shutil.rmtree(former, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    """Make renames inside ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(folder: Path) -> None:
    """Delete a checkpoint. It is renamed first, so a partly deleted one is never read."""
    trash = _beside(folder, _TRASH)
    shutil.rmtree(trash, ignore_errors=True)
    folder.rename(trash)
    shutil.rmtree(trash, ignore_errors=True)
