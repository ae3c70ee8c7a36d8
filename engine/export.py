"""The trained model as other programs read it: ``model.safetensors``, and ``spec.json`` with how it came about.

Both lie in the run's final checkpoint and are listed in its manifest, so they are there together with it or not at all.
Tied weights are written once; the file's metadata maps each name that was left out to the one that holds its values,
as ``safetensors.torch.save_model`` does. What is no tensor is left out.

Not here: weights to start from (``engine.initial``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save, save_file
from torch import Tensor

from lockstep.engine.checkpoint import Part, Written, digest_of, hashed

MODEL: Final = "model.safetensors"
SPEC: Final = "spec.json"


class NotExportableError(Exception):
    """The model holds something that the format has no place for. The message names it."""


def parts(model: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Part]:
    """The files of an export.

    Parameters
    ----------
    model : mapping of str to Tensor
        A whole state dict, on any device.
    about : mapping
        JSON values: what ``spec.json`` says. Its numbers and texts are in the model's metadata, too.

    Raises
    ------
    NotExportableError
    """
    tensors = {name: value for name, value in model.items() if isinstance(value, Tensor)}
    for name, tensor in tensors.items():
        _check(name, tensor)
    kept, tied = _once(tensors)
    metadata = {"format": "pt", **{key: str(value) for key, value in about.items() if _is_short(value)}, **tied}

    def write_model(path: Path) -> Written:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in kept.items()}, path, metadata)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        # The library writes the file itself, so its digest takes a second look; once in a run, and out of memory.
        return digest_of(path)

    text = json.dumps(about, indent=2, ensure_ascii=False).encode()
    return {MODEL: write_model, SPEC: hashed(lambda file: file.write(text))}


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
        # A part of another tensor's memory is written out on its own: the format knows no views.
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
