"""Source of a run's initial weights: the value of ``train.init_from``.

Not here: finding the checkpoint (``storage.attempts.checkpoints``), reading the weights
(``engine.checkpoints.initial``).
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from lockstep.domain.errors import at_field

JOB_PREFIX: Final = "job:"
_JOB: Final = re.compile(r"^job:(?P<job>[^@\s]+)(?:@(?P<which>[0-9]{1,10}|best))?$")


class JobCheckpoint(NamedTuple):
    """A checkpoint of another job."""

    job: str
    """Its id, or another reference to a job."""
    which: int | Literal["best"] | None
    """A step; None means the newest."""

    def __str__(self) -> str:
        return f"{JOB_PREFIX}{self.job}" + ("" if self.which is None else f"@{self.which}")


def job_checkpoint(source: str | None) -> JobCheckpoint | None:
    """The job's checkpoint that ``source`` names; None where it names a path, or nothing.

    Raises
    ------
    ValueError
        If it begins like a job and continues like nothing that is known.
    """
    if source is None or not source.startswith(JOB_PREFIX):
        return None
    found = _JOB.fullmatch(source)
    if found is None:
        raise ValueError(f"expected job:ID, job:ID@STEP or job:ID@best, got {source!r}")
    which: str | None = found["which"]
    if which is None:
        return JobCheckpoint(found["job"], None)
    return JobCheckpoint(found["job"], "best" if which == "best" else int(which))


def checked_source(source: str) -> str:
    """Refuse values that :func:`job_checkpoint` cannot read, or that no file system accepts."""
    try:
        job_checkpoint(source)
    except ValueError:
        raise at_field(
            (),
            "expected job:ID, job:ID@STEP or job:ID@best, or a path",
            "lockstep ckpt ls JOB lists the steps of a job's checkpoints",
        ) from None
    if "\0" in source:
        raise at_field((), "expected a path without NUL characters", "remove it")
    return source
