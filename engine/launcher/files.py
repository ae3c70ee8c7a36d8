"""Reads of the attempt's files.

Not here: the contents of the files (``domain.life.attempt``).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from lockstep.domain.training import metrics

Model = TypeVar("Model", bound=BaseModel)

_TAIL_BYTES = 256 * 1024


def read_model(path: Path, model: type[Model]) -> Model | None:
    """The file as ``model``; None where it is missing or is not one."""
    try:
        return model.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None where it is missing or is not one."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def last_step(spool: Path) -> int | None:
    """The last step in a metrics spool; None where there is none.

    A script may write anything to it, so that lines which are no metrics are passed over.
    """
    for line in reversed(last_lines(spool)):
        try:
            step = metrics.decode(line, now=0.0, default_step=-1).step
        except ValueError:
            continue
        if step >= 0:
            return step
    return None


def last_lines(path: Path) -> list[bytes]:
    """The end of a file, by lines, the first of which may be cut.

    Nothing where the file is missing or is no file.
    """
    if not path.is_file():  # a pipe would be waited for
        return []
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).splitlines()
    except OSError:
        return []
