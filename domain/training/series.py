"""Metadata of series: unit, kind, direction, group, axis and domain of each name.

The engine's and the node agents' series have one row each in a table. A script's series has what
the script defined (``domain.training.definitions``), over the row of the table if it has one.
Nothing is derived from the words in a name: a series without a row and without a definition has no
unit and no direction. Its group is its prefix.

Not here: the format of a metrics line (``domain.training.metrics``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final, Literal, NamedTuple

from lockstep.domain.training.definitions import (
    NO_DOMAIN,
    NOTHING_DEFINED,
    Axis,
    Direction,
    Domain,
    Kind,
    SeriesDefinition,
)
from lockstep.domain.training.metrics import SYSTEM

POSITIVE: Final[Domain] = (0.0, None)
FRACTION: Final[Domain] = (0.0, 1.0)
PERCENT: Final[Domain] = (0.0, 100.0)
WITHOUT_PREFIX: Final = "metrics"
"""Group of the series whose names have no prefix."""


class Metadata(NamedTuple):
    """Meaning of a series' values."""

    unit: str = ""
    kind: Kind = "number"
    direction: Direction = "none"
    """``lower`` or ``higher`` values are better; ``none`` has no best value."""
    domain: Domain = NO_DOMAIN
    """Smallest and largest possible value; None where there is no bound."""
    axis: Axis = "step"
    """``time`` for measurements by the clock, which have no step of their own."""


class Metric(NamedTuple):
    """One series that the engine writes."""

    name: str
    metadata: Metadata
    reduction: str
    """Reduction over micro-batches and ranks."""


def _seconds(name: str, reduction: str) -> Metric:
    return Metric(name, Metadata("s", "seconds", "lower", POSITIVE), reduction)


def _rate(name: str, unit: str, reduction: str) -> Metric:
    return Metric(name, Metadata(unit, "number", "higher", POSITIVE), reduction)


METRICS: Final = (
    Metric(
        "train/loss",
        Metadata(direction="lower"),
        "weighted mean over the whole batch, all ranks",
    ),
    Metric("train/lr", Metadata(domain=POSITIVE), "equal on all ranks"),
    Metric(
        "train/grad_norm",
        Metadata(domain=POSITIVE),
        "2-norm of the whole batch's gradient, before clipping",
    ),
    Metric(
        "train/loss_scale",
        Metadata(domain=POSITIVE),
        "factor, equal on all ranks; precision fp16 only",
    ),
    Metric(
        "train/weight",
        Metadata("samples or tokens", "count", domain=POSITIVE),
        "sum over the whole batch",
    ),
    Metric("eval/loss", Metadata(direction="lower"), "weighted mean over the eval split"),
    _rate("throughput/samples_per_second", "samples/s", "all ranks together"),
    _rate("throughput/tokens_per_second", "tokens/s", "all ranks together; language models only"),
    _rate(
        "throughput/tflops_per_second",
        "TFLOP/s",
        "all ranks together; model FLOPs of forward and backward",
    ),
    Metric(
        "throughput/mfu",
        Metadata(direction="higher", domain=FRACTION),
        "model FLOPs divided by the devices' peak; known devices only",
    ),
    _seconds("time/step_seconds", "rank 0, wall clock of the whole step"),
    _seconds("time/data_seconds", "rank 0, waiting for samples"),
    _seconds("time/forward_seconds", "rank 0"),
    _seconds("time/backward_seconds", "rank 0, without exposed communication"),
    _seconds("time/communication_seconds", "rank 0, exposed: not hidden behind backward"),
    _seconds("time/tensor_seconds", "rank 0, messages within a tensor group; cut models only"),
    _seconds("time/activation_seconds", "rank 0, waiting for the stage before; pipelines only"),
    _seconds("time/gradient_seconds", "rank 0, waiting for the stage after; pipelines only"),
    _seconds("time/optimizer_seconds", "rank 0, clipping included"),
    _seconds("time/checkpoint_seconds", "rank 0"),
    _seconds("time/eval_seconds", "rank 0"),
    _seconds("time/other_seconds", "rank 0, the rest: the parts add up to the step"),
    Metric(
        "perf/tensor",
        Metadata(direction="lower", domain=FRACTION),
        "share of a step that messages within a tensor group take; cut models only",
    ),
    Metric(
        "perf/bubble",
        Metadata(direction="lower", domain=FRACTION),
        "share of a step in which a stage waits for messages of the others; pipelines only",
    ),
    Metric("memory/peak_bytes", Metadata("bytes", "bytes", domain=POSITIVE), "largest over ranks"),
)


def _clocked(unit: str, kind: Kind = "number", domain: Domain = POSITIVE) -> Metadata:
    return Metadata(unit, kind, "none", domain, "time")


SYSTEM_SERIES: Final[Mapping[tuple[str, str], Metadata]] = {
    ("rank", "gpu_utilization_percent"): _clocked("%", "percent", PERCENT),
    ("rank", "gpu_memory_bytes"): _clocked("bytes", "bytes"),
    ("rank", "gpu_power_watts"): _clocked("W"),
    ("rank", "gpu_temperature_celsius"): _clocked("°C", domain=NO_DOMAIN),
    ("rank", "cpu_percent"): _clocked("%", "percent"),
    ("rank", "rss_bytes"): _clocked("bytes", "bytes"),
    ("node", "cpu_percent"): _clocked("%", "percent", PERCENT),
    ("node", "memory_bytes"): _clocked("bytes", "bytes"),
    ("node", "disk_free_bytes"): _clocked("bytes", "bytes"),
    ("node", "network_received_bytes_per_second"): _clocked("bytes/s", "bytes"),
    ("node", "network_sent_bytes_per_second"): _clocked("bytes/s", "bytes"),
}
"""Measurements of node agents, by what is measured and the end of the name:
``system/rank3/rss_bytes``."""
_TABLE: Final = {metric.name: metric.metadata for metric in METRICS}
_PLACES: Final = {metric.name: place for place, metric in enumerate(METRICS)}
_MACHINE: Final = ("throughput", "time", "perf", "memory", "system")
"""Groups that describe the machine instead of the training."""
_FIRST: Final = ("train", "eval")
_DIGITS: Final = "0123456789"


def of_the_machine(name: str) -> bool:
    """Return whether a series describes the machine instead of the training.

    Two identical runs differ in these alone.
    """
    prefix, slash, _ = name.partition("/")
    return bool(slash) and prefix in _MACHINE


def metadata_of(name: str, definition: SeriesDefinition | None = None) -> Metadata:
    """Return a series' metadata: fields that its job defined, and the table's for the others."""
    known = _measured(name) if name.startswith(SYSTEM) else _TABLE.get(name, Metadata())
    given = NOTHING_DEFINED if definition is None else definition
    return Metadata(
        unit=given.unit_or(known.unit),
        kind=given.kind or known.kind,
        direction=given.direction or known.direction,
        domain=given.domain or known.domain,
        axis=given.axis or known.axis,
    )


def _measured(name: str) -> Metadata:
    owner, _, what = name.removeprefix(SYSTEM).partition("/")
    return SYSTEM_SERIES.get((owner.rstrip(_DIGITS), what), _clocked("", domain=NO_DOMAIN))


class DescribedSeries(NamedTuple):
    """A series of a job with its metadata and its group."""

    name: str
    group: str
    metadata: Metadata


def described(
    names: Iterable[str], definitions: Mapping[str, SeriesDefinition]
) -> list[DescribedSeries]:
    """Return a job's series in the order in which readers look at them.

    The training's groups come first and the machine's last. Of the others, and of the series of a
    group, those with a direction come first. Numbers in names are compared as numbers. Prefixes
    that differ in a number only (``layer.0``, ``layer.1``) are one group: a model has a hundred of
    them.
    """
    stems: dict[str, set[str]] = {}
    all_names = list(names)
    for prefix in map(_prefix, all_names):
        stems.setdefault(_stem(prefix), set()).add(prefix)
    found = []
    for name in all_names:
        prefix, definition = _prefix(name), definitions.get(name)
        group = prefix if len(stems[_stem(prefix)]) == 1 else _stem(prefix)
        if definition is not None and definition.group is not None:
            group = definition.group
        found.append(DescribedSeries(name, group, metadata_of(name, definition)))
    directed = {series.group for series in found if series.metadata.direction != "none"}
    return sorted(
        found,
        key=lambda series: (
            _place(series.group),
            series.group not in directed,
            _natural(series.group),
            series.metadata.direction == "none",
            _PLACES.get(series.name, len(_PLACES)),
            _natural(series.name),
        ),
    )


def described_together(
    jobs: Iterable[tuple[Iterable[str], Mapping[str, SeriesDefinition]]],
) -> list[DescribedSeries]:
    """Return the series of several jobs, each once, in the order of :func:`described`.

    Where jobs differ, the first definition counts. A direction is all of theirs, or none: a value
    that is better in one job and worse in another has no best.

    Parameters
    ----------
    jobs : iterable of pairs
        The names of a job's series, and its definitions.
    """
    names: dict[str, None] = {}
    definitions: dict[str, SeriesDefinition] = {}
    known = [(frozenset(some), defined) for some, defined in jobs]
    for some, defined in known:
        names.update(dict.fromkeys(some))
        for name, definition in defined.items():
            definitions.setdefault(name, definition)
    for name, definition in definitions.items():
        found = {
            metadata_of(name, defined.get(name)).direction
            for some, defined in known
            if name in some
        }
        if len(found) > 1:
            definitions[name] = definition.model_copy(update={"direction": "none"})
    return described(names, definitions)


def main_series(names: Iterable[str], definitions: Mapping[str, SeriesDefinition]) -> str | None:
    """Return the series that stands for a job in lists; None without any of its own.

    It is the first one with a direction, or the first one, in the order of :func:`described`.
    """
    own = [name for name in names if not of_the_machine(name)]
    directed = [
        name
        for name in own
        if (name in _TABLE or name in definitions)
        and metadata_of(name, definitions.get(name)).direction != "none"
    ]
    # The order costs a microsecond a name, and a page of 50 jobs may have 50,000 names.
    if directed:
        return described(directed, definitions)[0].name
    return min(own, default=None)


def _prefix(name: str) -> str:
    prefix, slash, _ = name.partition("/")
    return prefix if slash and prefix else WITHOUT_PREFIX


def _stem(prefix: str) -> str:
    """Return ``layer.3`` and ``layer_3`` without the number; a name that is all number stays."""
    stem = prefix.rstrip(_DIGITS)
    return (stem.rstrip("._-") or prefix) if stem != prefix else prefix


def _place(group: str) -> int:
    if group in _FIRST:
        return _FIRST.index(group) - len(_FIRST)
    return _MACHINE.index(group) + 1 if group in _MACHINE else 0


def _natural(name: str) -> list[tuple[Literal[0, 1], int, str]]:
    """Return a key that sorts rank2 before rank10."""
    return [
        (0, int(number), "") if is_number else (1, 0, number)
        for is_number, part in groupby(name, str.isdecimal)
        if (number := "".join(part))
    ]
