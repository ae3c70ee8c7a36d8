"""Columns of a list of jobs: those of each job, its settings, and its metrics.

A column is named ``gpus``, ``setting:train.optimizer.lr`` or ``metric:val/loss:min``. The last two
may be shortened: ``lr`` is the setting whose path ends so, and a name with ``/`` is a metric. The
part of a metric is its ``last`` value, or the smallest or largest of its values, ``min`` and
``max``.

Not here: the grammar of filters (``domain.listing.tokens``), which settings and metrics exist, and
the statements (``storage.jobs``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from lockstep.domain.life.lifecycle import JobState


class Kind(StrEnum):
    """Kind of the values of a column."""

    TEXT = "text"
    NUMBER = "number"
    MOMENT = "moment"
    """Seconds since the epoch."""
    DURATION = "duration"
    """Seconds."""
    SHARE = "share"
    """0 to 1."""
    ANY = "any"
    """A number or a text: a setting."""


OF_JOBS: Final = {
    "name": Kind.TEXT,
    "id": Kind.TEXT,
    "state": Kind.TEXT,
    "kind": Kind.TEXT,
    "owner": Kind.TEXT,
    "project": Kind.TEXT,
    "created": Kind.MOMENT,
    "started": Kind.MOMENT,
    "finished": Kind.MOMENT,
    "age": Kind.DURATION,
    "duration": Kind.DURATION,
    "gpus": Kind.NUMBER,
    "priority": Kind.NUMBER,
    "attempts": Kind.NUMBER,
    "step": Kind.NUMBER,
    "progress": Kind.SHARE,
}
"""Columns that each job has."""
SEVERAL: Final = {"node": Kind.TEXT, "label": Kind.TEXT, "starred": Kind.TEXT}
"""Fields of filters that sort nothing: a job has several values, or one of two."""
CHOICES: Final = {
    "state": tuple(state.value for state in JobState),
    "kind": ("train", "script"),
    "starred": ("yes", "no"),
}
"""All values of a column."""
Part = Literal["last", "min", "max"]
PARTS: Final[tuple[Part, ...]] = ("last", "min", "max")


@dataclass(frozen=True)
class Column:
    """A column whose name is complete."""

    source: Literal["job", "setting", "metric", "label"]
    name: str
    """Of ``OF_JOBS`` or ``SEVERAL``, the path of a setting or the end of several, the name of a
    metric, or the key of a label."""
    part: Part = "last"
    """Of a metric."""
    paths: tuple[str, ...] = ()
    """Of the settings of a short name, of which the first that a job has counts."""

    @property
    def kind(self) -> Kind:
        if self.source == "job":
            return OF_JOBS.get(self.name, Kind.TEXT)
        return {"setting": Kind.ANY, "metric": Kind.NUMBER}.get(self.source, Kind.TEXT)

    def __str__(self) -> str:
        if self.source == "job":
            return self.name
        return f"{self.source}:{self.name}" + (f":{self.part}" * (self.source == "metric"))


@dataclass(frozen=True)
class Reference:
    """Name of a column as it was written; only the service knows which settings exist."""

    source: Literal["job", "setting", "metric", "label"] | None
    """None for a setting or a metric."""
    name: str
    part: Part | None = None
    """None where none was written."""


def reference_of(text: str) -> Reference:
    """Return what a name of a column refers to. It may be one that does not exist."""
    before, colon, after = text.partition(":")
    if text in OF_JOBS or text in SEVERAL:
        return Reference("job", text)
    if colon and before == "label":
        return Reference("label", after)
    if colon and before == "setting":
        return Reference("setting", after)
    is_metric = colon == ":" and before == "metric"
    name, part = _parted(after if is_metric else text)
    if is_metric or part is not None or "/" in name:
        return Reference("metric", name, part)
    return Reference(None, name)


def _parted(text: str) -> tuple[str, Part | None]:
    for part in PARTS:
        if text.endswith(f":{part}"):
            return text.removesuffix(f":{part}"), part
    return text, None


@dataclass(frozen=True)
class Sort:
    """Order of a list. Jobs without a value come last, and equal ones go by id."""

    column: Column
    descending: bool

    def __str__(self) -> str:
        return "-" * self.descending + str(self.column)


NEWEST: Final = Sort(Column("job", "created"), descending=True)
OLDEST: Final = Sort(Column("job", "created"), descending=False)
