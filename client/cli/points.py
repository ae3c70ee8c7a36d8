"""Points of a job's series, one to a line: those there are, and those that come.

Not here: the command (``client.cli.metrics``), and the same as a file (``client.export``).
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from client.cli.common import say
from client.export import Point, every_point, names_of

if TYPE_CHECKING:
    from client.api import Client
    from domain.views import MetricsView


def as_csv() -> Callable[[Point], object]:
    """Writes the heading, and then the points it is given."""
    writer = csv.writer(sys.stdout)
    writer.writerow(Point._fields)
    return writer.writerow


def as_json(point: Point) -> None:
    """Write a point as one JSON object."""
    print(json.dumps(point._asdict()))


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
            say(f"no points of {name}; lockstep metrics {job} -o name lists what there is")
            continue
        for point in every_point(client, job, name, from_step=from_step, to_step=to_step, attempts=attempts):
            put(point)


def follow(client: Client, job: str, names: Sequence[str], put: Callable[[Point], object]) -> None:
    """Write points of every attempt as they come, until the job has ended."""
    sys.stdout.flush()
    for found in client.follow_metrics(job, names=names, attempts="all"):
        write_view(found, put)
        sys.stdout.flush()


def write_view(found: MetricsView, put: Callable[[Point], object]) -> None:
    """Write the points of an answer, and say where one stands for several."""
    for series in found.series:
        if series.count > len(series.step):
            say(
                f"{series.count} points of {series.name} are written as {len(series.step)}; lockstep export writes each"
            )
        for step, time, value in zip(series.step, series.time, series.value, strict=True):
            put(Point(series.name, series.attempt, step, time, value))
