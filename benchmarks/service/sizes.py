"""Sizes of the measurements.

Enough for a figure, or (``--quick``) only enough to check that every row runs.

Not here: rates and limits that define one row (the rows).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """All of one run. Counts are per round unless said otherwise."""

    ingest_steps: int = 20_000
    """Steps of ten series each."""
    mlflow_batches: int = 20
    """Of a thousand points each, the limit of ``log_batch``."""
    chart_points: int = 100_000
    """Of the series that both draw; filled once."""
    chart_points_large: int = 1_000_000
    """Of the series that is drawn by us alone; filled once."""
    chart_jobs: int = 20
    """That are drawn together, by us alone; filled once."""
    chart_points_each: int = 50_000
    chart_requests: int = 15
    load_seconds: float = 5.0
    """Of each load: at full speed, and at each rate."""
    reads: int = 200
    dashboards: int = 200
    dashboard_seconds: float = 20.0
    queue_jobs: int = 20
    """Jobs of ``true`` on two slots."""
    life_jobs: int = 1_000
    step_time_steps: int = 200
    team_jobs: int = 300_000
    """In the projects of a large team; filled once."""
    settle_seconds: float = 10.0
    """Idle, before memory is read."""
    idle_seconds: float = 40.0
    """Of the window in which all idle services are measured: steps of 0.025 % of a core."""
    commands: int = 5


QUICK = Sizes(
    ingest_steps=200,
    mlflow_batches=2,
    chart_points=2_000,
    chart_points_large=5_000,
    chart_jobs=3,
    chart_points_each=1_500,
    chart_requests=2,
    load_seconds=0.5,
    reads=5,
    dashboards=10,
    dashboard_seconds=5.0,
    queue_jobs=2,
    life_jobs=5,
    step_time_steps=12,
    team_jobs=500,
    settle_seconds=1.0,
    idle_seconds=1.0,
    commands=1,
)
