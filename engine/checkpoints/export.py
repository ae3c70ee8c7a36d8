"""Export of the trained model.

``model.safetensors``, ``spec.json`` with its origin, and the task's own files.

The files are parts of the run's final checkpoint and listed in its manifest. Tied weights are
written once; the file's metadata maps each name that was left out to the one that holds its values,
as ``safetensors.torch.save_model`` does. Values of the state that are no tensors are left out. The
task's files (``Task.export_files``) let other programs load the model: of a Hugging Face model, its
configuration and its tokenizer.

Not here: weights to start from (``engine.checkpoints.initial``).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save, save_file
from torch import Tensor

from lockstep.domain.life.attempt import MANIFEST
from lockstep.domain.life.manifest import FILE_NAME
from lockstep.engine.checkpoints.checkpoint import STATE, Part, Written, digest_of, hashed

MODEL: Final = "model.safetensors"
SPEC: Final = "spec.json"
_OWN: Final = frozenset({STATE, MODEL, SPEC, MANIFEST})
_BUFFER_BYTES: Final = 1 << 20


class NotExportableError(Exception):
    """The model holds something that the format has no place for. The message names it."""


def parts(model: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Part]:
    """Return the files of an export.

    Parameters
    ----------
    model : mapping of str to Tensor
        A whole state dict, on any device.
    about : mapping
        JSON values: the contents of ``spec.json``. Its numbers and strings are in the model's
        metadata, too.

    Raises
    ------
    NotExportableError
    """
    tensors = {name: value for name, value in model.items() if isinstance(value, Tensor)}
    for name, tensor in tensors.items():
        _check(name, tensor)
    kept, tied = _once(tensors)
    metadata = {
        "format": "pt",
        **{key: str(value) for key, value in about.items() if _is_short(value)},
        **tied,
    }

    def write_model(path: Path) -> Written:
        save_file(
            {name: tensor.detach().cpu().contiguous() for name, tensor in kept.items()},
            path,
            metadata,
        )
        with path.open("rb") as file:
            os.fsync(file.fileno())
        # The library writes the file itself, so its digest takes a second look; once in a run, and
        # out of memory.
        return digest_of(path)

    text = json.dumps(about, indent=2, ensure_ascii=False).encode()
    return {MODEL: write_model, SPEC: hashed(lambda file: file.write(text))}


def files_of(folder: Path) -> tuple[dict[str, Part], list[str]]:
    """Return the files that a task wrote for its export, and the entries to leave out.

    Parameters
    ----------
    folder : Path
        Must exist until the parts are written.

    Returns
    -------
    parts : dict of str to Part
    refused : list of str
        Each with its reason: folders, links, the names of Lockstep's own files, and names that a
        manifest does not accept.
    """
    taken: dict[str, Part] = {}
    refused = []
    for path in sorted(folder.iterdir()):
        reason = _reason_against(path)
        if reason:
            refused.append(f"{path.name} ({reason})")
        else:
            taken[path.name] = _copy_of(path)
    return taken, refused


def _reason_against(path: Path) -> str:
    if path.is_symlink() or not path.is_file():
        return "not a regular file"
    if path.name in _OWN:
        return "the name is reserved for Lockstep"
    return "" if re.fullmatch(FILE_NAME, path.name) else f"its name does not match {FILE_NAME}"


def _copy_of(source: Path) -> Part:
    def copy(path: Path) -> Written:
        with source.open("rb") as file:
            return hashed(lambda target: shutil.copyfileobj(file, target, _BUFFER_BYTES))(path)

    return copy


def _once(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors under one name each, and the other names of those that have several."""
    kept: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    first_names: dict[object, str] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        place = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        first = first_names.setdefault(place, name) if tensor.numel() else name
        if first != name:
            tied[name] = first
            continue
        # A view of another tensor is written as a tensor of its own: the format has no views.
        storage = tensor.untyped_storage().data_ptr()
        kept[name] = tensor.clone() if storage in storages and tensor.numel() else tensor
        storages.add(storage)
    return kept, tied


def _check(name: str, tensor: Tensor) -> None:
    if tensor.layout != torch.strided:
        raise NotExportableError(f"{name} is a {str(tensor.layout).removeprefix('torch.')} tensor")
    try:
        save({name: torch.empty(0, dtype=tensor.dtype)})
    except (KeyError, ValueError, RuntimeError):
        raise NotExportableError(f"{name} has the number format {tensor.dtype}") from None


def _is_short(value: object) -> bool:
    return isinstance(value, str | int | float)
