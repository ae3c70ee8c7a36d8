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
    """Return the file as ``model``, or None if it is missing or invalid."""
    try:
        return model.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def read_object(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None if it is missing or invalid."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def last_step(spool: Path) -> int | None:
    """Return the last step in a metrics spool, or None without one.

    A script may write anything to the spool, so lines that are not metrics are skipped.
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
    """Return the end of a file as lines, the first of which may be cut.

    Empty if the file is missing or not a regular file.
    """
    if not path.is_file():  # Opening a pipe would block.
        return []
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).splitlines()
    except OSError:
        return []
