"""Responses about series: their metadata and figures, and their points.

Not here: the metadata of each name (``domain.training.series``), other responses
(``domain.views``).
"""

from __future__ import annotations

from lockstep.domain.training.definitions import Axis, Direction, Domain, Kind
from lockstep.domain.views import Value, View


class SeriesMetadata(View):
    """Metadata of one series."""

    name: str
    group: str
    """Heading under which it is shown: the prefix of its name, or what its script gave."""
    unit: str
    """Empty if unknown."""
    kind: Kind
    """Form of its numbers: ``bytes`` as KiB and MiB, ``seconds`` as times, ``percent``."""
    direction: Direction
    """``lower`` or ``higher`` values are better; ``none``: it has no best value."""
    axis: Axis
    """``time`` for measurements by the clock, which lie along no steps."""
    domain: Domain
    """Smallest and largest possible value; null without a bound."""


class SeriesSummary(SeriesMetadata):
    """Metadata and figures of one series.

    The figures are those of its current curve, without the steps that a later attempt repeated.
    """

    attempt: int
    """Of the last point, as are the step and the time."""
    last: Value
    last_step: int
    last_time: float
    """Seconds since the epoch."""
    count: int
    """Points stored; 0 if their retention is over."""
    non_finite: int
    """Points among them whose value is NaN or infinite."""
    min: float | None
    """Smallest finite value; null without one."""
    max: float | None
    best: float | None
    """``min`` or ``max``, by the direction; null without one."""
    best_step: int | None
    """Step of the first point with the best value."""


class JobSeriesSummary(View):
    job_id: str
    series: list[SeriesSummary]
    """In the order in which readers look at them, the series of a group together."""


class SeveralSeriesSummary(View):
    series: list[SeriesMetadata]
    """All series of the jobs, each once. Where jobs differ, the first definition counts; a
    direction is all of theirs, or ``none``."""
    jobs: list[JobSeriesSummary]
    """In the order in which they were named, each once, with the named series."""


class SeriesView(View):
    """Points of one series of one attempt, or buckets if there are more than ``max_points``.

    ``step``, ``time`` and ``value`` hold the last point of each bucket; ``min`` and ``max`` its
    extremes. Without reduction a bucket is one point. Attempt 0 has the points of the job that this
    one continues.
    """

    name: str
    unit: str
    kind: Kind = "number"
    direction: Direction = "none"
    attempt: int
    count: int
    """Points stored, before reduction."""
    non_finite: int = 0
    """Points among them whose value is NaN or infinite."""
    step: list[int]
    time: list[float]
    """Seconds since the epoch."""
    value: list[Value]
    min: list[Value]
    max: list[Value]


class JobSeriesView(View):
    job_id: str
    series: list[SeriesView]


class MetricsView(JobSeriesView):
    cursor: str
    """Pass it as ``since`` to get data that is stored later."""
    complete: bool
    """True if the series are complete and replace any answer before; false if they hold only the
    data since the given cursor."""


class SeveralMetricsView(View):
    jobs: list[MetricsView]
    """In the order in which they were named, each once."""
