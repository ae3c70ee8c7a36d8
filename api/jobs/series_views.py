"""Conversion of figures of series to the types of ``domain.series_views``.

Not here: jobs (``api.jobs.views``), points (``api.routes.history``).
"""

from __future__ import annotations

from lockstep.domain.series_views import SeriesMetadata, SeriesSummary
from lockstep.domain.training.series import DescribedSeries
from lockstep.storage.series.figures import SeriesFigures


def metadata_view(series: DescribedSeries) -> SeriesMetadata:
    """Return the view of a series' metadata."""
    return SeriesMetadata(name=series.name, group=series.group, **series.metadata._asdict())


def summary_view(figures: SeriesFigures) -> SeriesSummary:
    """Return the view of a series' metadata and figures."""
    series, last = figures.series, figures.last
    return SeriesSummary(
        name=series.name,
        group=series.group,
        **series.metadata._asdict(),
        attempt=last.attempt,
        last=last.value,
        last_step=last.step,
        last_time=last.time,
        count=figures.count,
        non_finite=figures.non_finite,
        min=figures.min,
        max=figures.max,
        best=figures.best,
        best_step=figures.best_step,
    )
