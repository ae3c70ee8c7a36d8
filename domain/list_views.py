"""Responses about lists of jobs: a page with the totals of the whole list.

Not here: one job (``domain.views``), names of columns (``domain.listing.columns``).
"""

from __future__ import annotations

from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.views import JobView, Page, View


class ListedJob(JobView):
    """A job of a list."""

    values: dict[str, float | str] = {}  # noqa: RUF012 -- pydantic copies it
    """Its values in the requested ``columns``. NaN and infinite numbers are texts."""


class JobGroup(View):
    """Jobs of a list with one value in the column by which it is grouped."""

    value: str | None
    """Null for the jobs without a value."""
    total: int
    states: dict[JobState, int]
    gpus_in_use: int
    best: float | str | None = None
    """Value of the first of its jobs in the order of the list, if it is a number."""


class JobTotals(View):
    """Numbers of all jobs of a list, on all pages."""

    states: dict[JobState, int]
    """Jobs by state. The parameter ``state`` does not change them."""
    gpus_in_use: int
    """Devices of jobs that start or run."""
    groups: list[JobGroup] = []  # noqa: RUF012 -- pydantic copies it
    """Largest first, at most 200."""
    groups_total: int = 0


class JobPage(Page[ListedJob]):
    """One page of jobs, with their number."""

    total: int
    """Jobs on all pages; counted up to 10,000 unless ``totals`` are requested."""
    totals: JobTotals | None = None
    """Null unless they were requested."""
