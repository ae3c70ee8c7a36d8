"""Valid documents for the tests of this folder, and a function that changes one value in them."""

from __future__ import annotations

import copy
from typing import Any

REMOVE = object()


def train_document() -> dict[str, Any]:
    """Return a small train job that is accepted unchanged."""
    return {
        "name": "small",
        "kind": "train",
        "train": {"task": "causal_lm", "batch": {"size": 64, "micro_size": 8}, "steps": 10},
    }


def script_document() -> dict[str, Any]:
    """Return a small script job that is accepted unchanged."""
    return {"name": "small", "kind": "script", "script": {"command": ["train.py"]}}


def changed(document: dict[str, Any], pointer: str, value: Any) -> dict[str, Any]:
    """Return a copy of ``document`` with ``value`` at ``pointer``.

    Missing objects on the path are created. REMOVE deletes the value.
    """
    result = copy.deepcopy(document)
    *parents, last = pointer.strip("/").split("/")
    here: dict[str, Any] = result
    for name in parents:
        here = here.setdefault(name, {})
    if value is REMOVE:
        here.pop(last, None)
    else:
        here[last] = value
    return result
