"""Checkpoints on this machine: downloaded whole or not at all, and verified against their manifest.

A checkpoint is downloaded into a folder with a temporary name; each file is verified on arrival;
the folder is renamed at the end. A folder named ``step-00000050`` is therefore whole.

Not here: the list of files (``client.api``), and their contents (``engine.checkpoints``).
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lockstep.client.errors import ClientError, UsageError
from lockstep.domain.life.attempt import MANIFEST
from lockstep.domain.life.manifest import (
    FORMER_STATE,
    STATE,
    TENSORS,
    ManifestError,
    read_manifest,
)

if TYPE_CHECKING:
    from lockstep.client.api import Client
    from lockstep.domain.views import CheckpointDetail, CheckpointFile

MODEL: Final = "model.safetensors"
_SPEC: Final = "spec.json"
_CONFIG: Final = "config.json"
_TRAINING_FILES: Final = frozenset({STATE, TENSORS, FORMER_STATE, MANIFEST})
"""Files of a checkpoint that only a resumed run reads."""
TAKE_ANOTHER: Final = "use another checkpoint; lockstep ckpt ls lists them"


class DigestMismatchError(ClientError):
    """A file differs from its digest in the manifest or in the server's answer."""


def fetch(
    client: Client,
    job: str,
    checkpoint: CheckpointDetail,
    parent: Path,
    *,
    model_only: bool,
    say: Callable[[str], None],
) -> Path:
    """Fetch a checkpoint, or the model alone, into a folder below ``parent``.

    Returns
    -------
    Path
        The folder: ``step-00000050``.

    Raises
    ------
    DigestMismatchError
        If a file arrives otherwise than its digest says.
    UsageError
        If the folder is there already, or the checkpoint has no model of its own.
    """
    files = [
        file for file in checkpoint.files if not model_only or file.name not in _TRAINING_FILES
    ]
    if not any(file.name == MODEL for file in files) and model_only:
        raise UsageError(
            f"the checkpoint of step {checkpoint.step} has no {MODEL}: only the last checkpoint "
            f"of a run has it",
            next_step="fetch the whole checkpoint, without --model-only",
        )
    target = parent / f"step-{checkpoint.step:08d}"
    if target.exists():
        raise UsageError(
            f"{target} is there already", next_step="remove it, or give another folder with -C"
        )
    partial = target.with_name(f".{target.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        for file in files:
            say(f"{file.name}, {file.bytes:,} bytes")
            with (partial / file.name).open("wb") as out:
                check_file(client, job, checkpoint, file, also=out.write)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    if model_only and _lacks_configuration(target):
        say(
            f"{target} has no {_CONFIG}, so from_pretrained cannot load it: the run did not "
            f"export one; "
            f"copy {_CONFIG} and the tokenizer's files from the folder in task_args.model"
        )
    return target


def _lacks_configuration(folder: Path) -> bool:
    """Return True for an exported model of ``hf_causal_lm`` without its configuration.

    Its run was older than the export of configurations, or writing them failed.
    """
    try:
        task = json.loads((folder / _SPEC).read_bytes())["task"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return bool(task == "hf_causal_lm") and not (folder / _CONFIG).is_file()


def check_file(
    client: Client,
    job: str,
    checkpoint: CheckpointDetail,
    file: CheckpointFile,
    *,
    also: Callable[[bytes], object] = lambda _: None,
) -> None:
    """Read a file from the server and compare its digest; ``also`` gets its bytes.

    Raises
    ------
    DigestMismatchError
        If it differs from its digest in the manifest.
    """
    digest = hashlib.sha256()

    def take(block: bytes) -> None:
        digest.update(block)
        also(block)

    client.read_checkpoint_file(job, checkpoint, file, take)
    if digest.hexdigest() != file.sha256:
        raise DigestMismatchError(
            f"{file.name} of step {checkpoint.step} is damaged: its SHA-256 differs from the "
            f"manifest",
            next_step=TAKE_ANOTHER,
        )


def verify(folder: Path) -> tuple[int, int, int]:
    """Check a checkpoint's folder.

    Its step, how many files its manifest names, and the bytes of all.

    Raises
    ------
    DigestMismatchError
        With the name of the first file that is missing, torn or changed.
    """
    try:
        text = (folder / MANIFEST).read_bytes()
        manifest = read_manifest(text)
    except FileNotFoundError:
        raise DigestMismatchError(
            f"{folder} has no {MANIFEST}: it is not a checkpoint, or was not completed",
            next_step="give a folder such as checkpoints/step-00000050",
        ) from None
    except ManifestError as error:
        raise DigestMismatchError(f"{folder / MANIFEST} {error}") from None
    for name, expected in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise DigestMismatchError(f"{path} is missing")
        size = path.stat().st_size
        if size != expected.bytes:
            raise DigestMismatchError(
                f"{path} has {size:,} bytes; the manifest has {expected.bytes:,}"
            )
        if _sha256(path) != expected.sha256:
            raise DigestMismatchError(
                f"{path} was changed after it was written: its SHA-256 differs"
            )
    return (
        manifest.step,
        len(manifest.files),
        len(text) + sum(file.bytes for file in manifest.files.values()),
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
