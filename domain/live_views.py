"""Response about a job that is followed: the job with all that is new about it.

Not here: its parts (``domain.views``, ``domain.series_views``).
"""

from __future__ import annotations

from lockstep.domain.series_views import SeriesSummary, SeriesView
from lockstep.domain.views import EventView, JobView, View


class JobLiveView(View):
    """A job, its series, and their points and its events since the given cursor."""

    job: JobView
    summaries: list[SeriesSummary] | None
    """As `listJobSeries` lists them; null if they were not requested."""
    series: list[SeriesView]
    """Points of the requested series."""
    events: list[EventView]
    """Oldest first."""
    older_events: str | None
    """In a complete answer, the `cursor` of older events for `listJobEvents` with
    `order=newest`; null if there are none."""
    cursor: str
    """Pass it as ``since`` to get data that is stored later."""
    complete: bool
    """True if points and events replace those of any answer before; false if they are only those
    since the given cursor. A series that no answer before had is always complete."""
