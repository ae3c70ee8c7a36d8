"""Export of the trained model.

``model.safetensors``, ``spec.json`` with its origin, and the task's own files.

The files are parts of the run's final checkpoint and listed in its manifest. Weights that other
ranks hold are copied from the checkpoint's own file. Tied weights are written once; the file's
metadata maps each name that was left out to the one that holds its values,
as ``safetensors.torch.save_model`` does. Values of the state that are no tensors are left out. The
task's files (``Task.export_files``) let other programs load the model: of a Hugging Face model, its
configuration and its tokenizer.

Not here: weights to start from (``engine.checkpoints.initial``).
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from lockstep.domain.life.attempt import MANIFEST
from lockstep.domain.life.manifest import FILE_NAME, FORMER_STATE, STATE, TENSORS
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.train import Train
from lockstep.domain.training.plan import BatchPlan
from lockstep.engine.checkpoints import tensors
from lockstep.engine.checkpoints.checkpoint import Part, Written, hashed
from lockstep.engine.checkpoints.tensors import NamedTensor
from lockstep.engine.runtime.document import dtype_name
from lockstep.engine.runtime.errors import describe
from lockstep.engine.runtime.scattered import Scattered, identity

MODEL: Final = "model.safetensors"
SPEC: Final = "spec.json"
_OWN: Final = frozenset({STATE, TENSORS, FORMER_STATE, MODEL, SPEC, MANIFEST})
_BUFFER_BYTES: Final = 1 << 20


class NotExportableError(Exception):
    """The model holds something that the format has no place for. The message names it."""


class RunExport:
    """Files of the export at the end of a run.

    Parameters
    ----------
    folder : Path
        In which the task writes its files; removed after the last checkpoint.
    train : Train
    spec : JobSpec, optional
        Of the job, if there is one.
    export_files : callable
        ``Task.export_files`` with the model.
    warn : callable
    """

    def __init__(
        self,
        folder: Path,
        train: Train,
        spec: JobSpec | None,
        *,
        export_files: Callable[[Path], None],
        warn: Callable[[str], None],
    ):
        self._folder, self._train, self._spec = folder, train, spec
        self._export_files, self._warn = export_files, warn

    def files(
        self, model: Mapping[str, Any], *, step: int, plan: BatchPlan, loss: float | None
    ) -> dict[str, Part]:
        """Return the files of the model and of the task; none, with a warning, if it has no form.

        Parameters
        ----------
        model : mapping of str to Tensor
            As of :func:`parts`.
        step : int
        plan : BatchPlan
        loss : float, optional
            Of the last step.
        """
        about = {
            "job": self._spec.name if self._spec is not None else "",
            "task": self._train.task,
            "step": step,
            "batch_plan": plan.sentence(),
            "loss": loss,
            "plan": plan.model_dump(mode="json"),
            "spec": (
                self._spec.model_dump(mode="json")
                if self._spec is not None
                else {"train": self._train.model_dump(mode="json")}
            ),
        }
        try:
            return {**self._of_task(), **parts(model, about)}
        except NotExportableError as error:
            self._warn(f"the final checkpoint was saved without {MODEL}: {error}")
            return {}

    def clear(self) -> None:
        """Remove the task's files, once they are in the checkpoint."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _of_task(self) -> dict[str, Part]:
        self.clear()
        try:
            self._folder.mkdir()
            self._export_files(self._folder)
            files, refused = files_of(self._folder)
        except Exception as error:  # noqa: BLE001 - the job's code; the trained weights must not be lost by it
            self._warn(
                f"the export lacks the files of the task: export_files raised {describe(error)}"
            )
            return {}
        if refused:
            self._warn(f"the export skips files of the task: {', '.join(refused)}")
        return files


def parts(model: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Part]:
    """Return the files of an export.

    Parameters
    ----------
    model : mapping of str to Tensor
        A whole state dict, on any device. Its ``Scattered`` tensors are read from the checkpoint's
        file, which must be in the same folder by then.
    about : mapping
        JSON values: the contents of ``spec.json``. Its numbers and strings are in the model's
        metadata, too.

    Raises
    ------
    NotExportableError
    """
    weights = {
        name: value for name, value in model.items() if isinstance(value, Tensor | Scattered)
    }
    for name, value in weights.items():
        _check(name, value)
    kept, tied = _once(weights)
    metadata = {
        "format": "pt",
        **{key: str(value) for key, value in about.items() if _is_short(value)},
        **tied,
    }

    def write_model(path: Path) -> Written:
        there = {}
        if any(isinstance(value, Scattered) for value in kept.values()):
            there = tensors.views(path.with_name(TENSORS))
        pieces = tensors.in_order(
            [
                NamedTensor(name, there[f"model/{name}"] if isinstance(value, Scattered) else value)
                for name, value in kept.items()
            ]
        )
        return hashed(lambda file: tensors.write(file, pieces, metadata=metadata))(path)

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


def _once(
    weights: Mapping[str, Tensor | Scattered],
) -> tuple[dict[str, Tensor | Scattered], dict[str, str]]:
    """The tensors under one name each, and the other names of those that have several."""
    kept: dict[str, Tensor | Scattered] = {}
    tied: dict[str, str] = {}
    first_names: dict[object, str] = {}
    for name, value in weights.items():
        first = first_names.setdefault(identity(value), name)
        if first == name:
            kept[name] = value
        else:
            tied[name] = first
    return kept, tied


def _check(name: str, value: Tensor | Scattered) -> None:
    if isinstance(value, Tensor) and value.layout != torch.strided:
        raise NotExportableError(f"{name} is a {str(value.layout).removeprefix('torch.')} tensor")
    if value.dtype not in tensors.NAMES:
        raise NotExportableError(f"{name} has the number format torch.{dtype_name(value.dtype)}")


def _is_short(value: object) -> bool:
    return isinstance(value, str | int | float)
