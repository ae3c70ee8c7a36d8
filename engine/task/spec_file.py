"""YAML file of a job that is run without the service.

Not here: the values of the spec (``domain.spec.reading``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.spec.reading import read_spec
from lockstep.domain.spec.tasks import is_own_task


def read_alone(file: Path, code: Path | None) -> tuple[dict[str, Any], Path]:
    """The checked document of a train job, and the folder of its code.

    Parameters
    ----------
    file : Path
    code : Path, optional
        Folder of the code, unless the spec names one; by default that of the file.

    Raises
    ------
    LockstepError
        If the file cannot be read, or is no spec of a train job.
    """
    document = _read_yaml(file)
    folder = (code or file.parent).resolve()
    train = document.get("train") if isinstance(document, dict) else None
    own = isinstance(train, dict) and is_own_task(str(train.get("task")))
    if own and document.get("code") is None:
        document["code"] = {"path": str(folder)}
    spec = read_spec(document)
    if spec.train is None:
        raise LockstepError(
            ErrorCode.INVALID,
            f"{file}: kind is {spec.kind!r}; the engine runs kind: train only",
            next_step="start a script with torchrun",
        )
    return document, Path(getattr(spec.code, "path", folder))


def _read_yaml(file: Path) -> Any:
    try:
        return YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise LockstepError(
            ErrorCode.NOT_FOUND, f"{file} cannot be read: {error.strerror}"
        ) from None
    except (YAMLError, UnicodeDecodeError) as error:
        raise LockstepError(ErrorCode.MALFORMED, f"{file} is not YAML: {error}") from None
