"""Initial weights: ``train.init_from`` (contract C42).

Its value is one of

* a checkpoint's folder, or a folder with a ``model.safetensors``;
* a ``.safetensors`` file, or a state dict that ``torch.save`` wrote;
* ``job:ID`` or ``job:ID@STEP``, a checkpoint of another job, which the agent has put into the
  attempt's ``init/``.

The weights must match the model's, key by key. Everything else starts fresh: optimizer, schedule,
data. Numbers are converted to the model's format. Reading runs no code.

Not here: resuming a run (``engine.checkpoints.state``), where every part must match.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from lockstep.domain.life import attempt
from lockstep.domain.life.manifest import FORMER_STATE, STATE, TENSORS
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.spec.init_from import JOB_PREFIX
from lockstep.engine.checkpoints import checkpoint, contents, export, tensors
from lockstep.engine.data.fingerprint import differences, sentence
from lockstep.engine.runtime.errors import BadSpecError, EngineError
from lockstep.engine.runtime.ranks import Ranks

_SAFETENSORS: Final = ".safetensors"


def load_initial(model: nn.Module, given: str, folder: Path, ranks: Ranks) -> None:
    """Load the weights that ``given`` names into ``model``. All ranks must call this.

    Parameters
    ----------
    model : nn.Module
        The user's, before it is wrapped.
    given : str
        ``train.init_from``. A relative path starts at the working directory, which is the job's
        code.
    folder : Path
        The attempt's folder.
    ranks : Ranks

    Raises
    ------
    EngineError
        ``bad_spec``: it does not exist or does not match; ``storage``: it is damaged.
    """
    path = _path(given, folder)
    weights = _weights(path, given, ranks)
    mine = model.state_dict()
    weights = {**weights, **_tied(mine, weights)}
    wrong = differences(weights, mine, formats=False)
    if wrong:
        raise BadSpecError(f"train.init_from: {given} does not fit the model: {sentence(wrong)}")
    model.load_state_dict(weights)


def _path(given: str, folder: Path) -> Path:
    if not given.startswith(JOB_PREFIX):
        path = Path(given)
        if not path.exists():
            raise BadSpecError(f"train.init_from: {path.absolute()} does not exist on this node")
        return path
    path = folder / attempt.INIT
    if not path.is_dir():
        raise BadSpecError(
            f"train.init_from: {given} is available under the service only: give a folder or a "
            f"file",
        )
    return path


def _weights(path: Path, given: str, ranks: Ranks) -> dict[str, Any]:
    """All ranks must call this: the first of each node checks for all of them."""
    damage = next(filter(None, ranks.gather(_damage(path) if ranks.local_rank == 0 else "")), "")
    if damage:
        raise EngineError(Reason.STORAGE, f"train.init_from: {given} is damaged: {damage}")
    file = _file(path, given)
    try:
        if file.name == STATE:
            found = contents.read(file.parent)
        elif file.suffix == _SAFETENSORS:
            return tensors.views(file)
        else:
            found = torch.load(file, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - of a file that is something else, torch raises whatever it stumbles over
        raise BadSpecError(
            f"train.init_from: {file} cannot be read as weights: {_first_line(error)}",
        ) from None
    if isinstance(found, Mapping) and isinstance(found.get("model"), Mapping):
        found = found["model"]
    if not isinstance(found, Mapping) or not any(
        isinstance(value, Tensor) for value in found.values()
    ):
        raise BadSpecError(
            f"train.init_from: {file} has no weights: expected a checkpoint or a state dict",
        )
    return dict(found)


def _damage(path: Path) -> str:
    """Return the damage of a checkpoint; empty if there is no manifest to check."""
    if not (path / attempt.MANIFEST).is_file():
        return ""
    try:
        checkpoint.verify(path)
    except checkpoint.DamagedCheckpointError as error:
        return str(error)
    return ""


def _file(path: Path, given: str) -> Path:
    if path.name == TENSORS and path.with_name(STATE).is_file():
        return path.with_name(STATE)
    if not path.is_dir():
        return path
    for name in (STATE, FORMER_STATE, export.MODEL):
        if (path / name).is_file():
            return path / name
    raise BadSpecError(
        f"train.init_from: {given} contains neither {STATE} nor {export.MODEL}",
    )


def _tied(mine: Mapping[str, Any], weights: Mapping[str, Any]) -> dict[str, Any]:
    """Values for names that the file omits because the model has them twice."""
    by_place = {
        _place(mine[name]): weights[name] for name in weights if isinstance(mine.get(name), Tensor)
    }
    return {
        name: by_place[_place(value)]
        for name, value in mine.items()
        if name not in weights
        and isinstance(value, Tensor)
        and value.numel()
        and _place(value) in by_place
    }


def _place(tensor: Tensor) -> object:
    return tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
