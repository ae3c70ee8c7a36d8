"""Reads of the attempt's files, which the ranks may write as well.

Not here: the contents of the files (``domain.life.attempt``).
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel

from lockstep.domain import limits
from lockstep.domain.life import attempt
from lockstep.domain.training import metrics
from lockstep.system.untrusted import Untrusted

Model = TypeVar("Model", bound=BaseModel)

_TAIL_BYTES = 256 * 1024


def read_model(files: Untrusted, name: str, model: type[Model]) -> Model | None:
    """Return the file as ``model``, or None if it is missing or invalid."""
    try:
        return files.model(name, model)
    except (OSError, ValueError):
        return None


def read_object(files: Untrusted, name: str) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None if it is missing or invalid."""
    try:
        text = files.read(name, most=limits.EVIDENCE_BYTES_MAX)
        document = None if text is None else json.loads(text)
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def last_step(files: Untrusted) -> int | None:
    """Return the last step in the metrics spool, or None without one.

    A script may write anything to the spool, so lines that are not metrics are skipped.
    """
    for line in reversed(last_lines(files, attempt.METRICS)):
        try:
            step = metrics.decode(line, now=0.0, default_step=-1).step
        except ValueError:
            continue
        if step >= 0:
            return step
    return None


def last_lines(files: Untrusted, name: str) -> list[bytes]:
    """Return the end of a file as lines, the first of which may be cut.

    Empty if the file is missing or not a regular file.
    """
    try:
        return files.tail(name, most=_TAIL_BYTES).splitlines()
    except OSError:
        return []
