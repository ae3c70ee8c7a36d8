"""Table of fields and values that the interface names and this version does not support yet.

No request is ever ignored: a value listed here is refused with its name and an alternative. When a
feature arrives, its line is removed.

Not here: values that are wrong in any version (``domain.spec.job``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from lockstep.domain.errors import FieldError
from lockstep.domain.spec.job import GpuRange, JobSpec


class _Later(NamedTuple):
    pointer: str
    value: Callable[[JobSpec], object]
    """The value as asked for, or None if this function was not asked for."""
    what: str
    instead: str


LATER: Final = (
    _Later(
        "/resources/gpus",
        lambda spec: (
            spec.resources.gpus.model_dump() if isinstance(spec.resources.gpus, GpuRange) else None
        ),
        "elastic jobs",
        "use one number, such as gpus: 2",
    ),
    _Later(
        "/secrets",
        lambda spec: list(spec.secrets) or None,
        "secrets",
        "use env for values that are not secret",
    ),
)
"""Every such function, in the order of the spec. ``docs/spec.md`` marks the fields with it."""


def not_yet(spec: JobSpec) -> Iterator[FieldError]:
    """One error per thing that ``spec`` asks for and this version cannot do."""
    for later in LATER:
        value = later.value(spec)
        if value is not None:
            yield FieldError(
                later.pointer,
                f"{later.what}: not available in this version of Lockstep",
                value,
                later.instead,
            )
