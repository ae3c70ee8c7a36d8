"""Training fields of a checkpoint's run that differ from those of the run that resumes it.

A resumed run may have another learning rate or length on purpose. It reports the difference,
because nothing else shows it.

Not here: values that must not change, such as the batch size and the seed
(``engine.checkpoints.state``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from lockstep.domain.spec.stored import read_tolerantly
from lockstep.domain.spec.train import Train

_VALUE_CHARS_MAX: Final = 80
_NAMED_MAX: Final = 8
_NOT_TRAINING: Final[dict[str, Any]] = {
    "batch": {"micro_size"},
    "checkpoint": True,
    "debug": True,
    "eval": True,
    "loader": True,
    "log_every_steps": True,
    "memory_headroom": True,
    "stall": True,
}
"""Fields that do not affect the training result."""
_LAYOUT: Final = ("strategy.", "parallel.")
"""Fields whose effect the checkpoint's layout records."""
_LENGTH: Final = ("steps", "epochs")


@dataclass(frozen=True)
class Change:
    """One field with its value in the checkpoint's run and in this one, as JSON.

    None where it is absent.
    """

    field: str
    before: str | None
    now: str | None

    def __str__(self) -> str:
        return f"{self.field} {_short(self.before)} → {_short(self.now)}"


def training_fields(train: Train) -> dict[str, Any]:
    """Return the fields that affect the training result, as a checkpoint holds them."""
    return train.model_dump(mode="json", exclude=_NOT_TRAINING)


def changes(stored: Mapping[str, Any] | None, train: Train) -> list[Change]:
    """Return the training fields that differ, in the order of the spec.

    Parameters
    ----------
    stored : mapping or None
        ``training_fields`` of the checkpoint's run. None, and a document that this version cannot
        read, have no changes.
    train : Train
        The fields of this run.
    """
    if stored is None:
        return []
    try:
        before = read_tolerantly(stored, Train.model_validate)
    except ValidationError:
        return []
    old, new = dict(_flat(training_fields(before))), dict(_flat(training_fields(train)))
    return [
        Change(field, old.get(field), new.get(field))
        for field in old | new
        if old.get(field) != new.get(field)
    ]


def affect_weights(found: list[Change], train: Train) -> bool:
    """Return whether these changes affect the final weights, in the same layout."""
    without_effect = _LAYOUT if train.schedule.name != "constant" else (*_LAYOUT, *_LENGTH)
    return any(not change.field.startswith(without_effect) for change in found)


def sentence(found: list[Change]) -> str:
    """Return the first changes, and the number of the others."""
    more = len(found) - _NAMED_MAX
    return "; ".join(map(str, found[:_NAMED_MAX])) + (f"; and {more} more" if more > 0 else "")


def _flat(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", json.dumps(value)


def _short(value: str | None) -> str:
    if value is None:
        return "none"
    return value if len(value) <= _VALUE_CHARS_MAX else f"{value[: _VALUE_CHARS_MAX - 1]}…"
