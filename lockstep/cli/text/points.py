"""Points of a job's series, one to a line: those there are, and those that come.

Not here: the command (``cli.jobs.metrics``), and the same as a file (``client.files.export``).
"""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from lockstep.cli.common import say
from lockstep.client.files.export import Point, every_point, names_of
from lockstep.domain import limits

if TYPE_CHECKING:
    from lockstep.client.api import Client
    from lockstep.domain.series_views import MetricsView
    from lockstep.domain.views import JobView


def as_csv() -> Callable[[Point], object]:
    """Writes the heading, and then the points it is given."""
    writer = csv.writer(sys.stdout)
    writer.writerow(Point._fields)
    return lambda point: writer.writerow(point.for_text())


def as_json(point: Point) -> None:
    """Write a point as one JSON object."""
    print(json.dumps(point.for_text()._asdict()))


def write(
    client: Client,
    job: str,
    names: Sequence[str],
    put: Callable[[Point], object],
    *,
    from_step: int,
    to_step: int | None,
    attempts: Literal["current", "all"] | None,
) -> None:
    """Write every point that is wanted, by name; without names, of all series."""
    there = names_of(client, job)
    wanted = list(names) or there
    for name in wanted:
        if name not in there:
            say(f"no points of {name}; lockstep metrics {job} -o name lists the series")
            continue
        for point in every_point(
            client, job, name, from_step=from_step, to_step=to_step, attempts=attempts
        ):
            put(point)


def follow(client: Client, job: str, names: Sequence[str], put: Callable[[Point], object]) -> None:
    """Write points of every attempt as they come, each once, until the job has ended."""
    cursor: str | None = None
    written = Counter[tuple[str, int]]()

    def look(found: JobView) -> None:
        nonlocal cursor
        # Of all attempts, because then no later attempt takes back what was written.
        answer = client.metrics(
            found.id, names=names, max_points=limits.SERIES_POINTS_MAX, attempts="all", since=cursor
        )
        cursor = answer.cursor
        write_view(without(written, answer), put)
        sys.stdout.flush()

    # A job's data is stored before its end is, so the last poll finds the rest.
    client.wait(job, each=look)


def without(written: Counter[tuple[str, int]], found: MetricsView) -> MetricsView:
    """Return an answer without the points that are written already, and count the others.

    It has these if it is complete, as after a restart of the service or the restore of a backup.
    """
    new = []
    for series in found.series:
        key = series.name, series.attempt
        before = written[key] if found.complete else 0
        count = max(0, series.count - before)
        written[key] += count
        cut = max(0, len(series.step) - count)
        parts = {name: getattr(series, name)[cut:] for name in ("step", "time", "value")}
        new.append(series.model_copy(update=parts | {"count": count}))
    return found.model_copy(update={"series": new})


def write_view(found: MetricsView, put: Callable[[Point], object]) -> None:
    """Write the points of an answer, and report where one stands for several."""
    for series in found.series:
        if series.count > len(series.step):
            say(
                f"{series.count} points of {series.name} are shown as {len(series.step)}; "
                "lockstep export writes all of them"
            )
        for step, time, value in zip(series.step, series.time, series.value, strict=True):
            put(Point(series.name, series.attempt, step, time, value))
