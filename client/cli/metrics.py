"""``metrics``: the numbers of a job, as a table, JSON or CSV.

Not here: what the numbers mean (``domain.metrics``).
"""

from __future__ import annotations

import csv
import sys
from math import isnan
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from client.cli.common import OUTPUT_GROUP, Connection, Many, say
from client.errors import ExitCode

if TYPE_CHECKING:
    from domain.views import MetricsView


def metrics(
    job: str,
    /,
    *,
    names: Annotated[list[str] | None, Many] = None,
    from_step: int | None = None,
    to_step: int | None = None,
    max_points: int | None = None,
    attempts: Literal["current", "all"] | None = None,
    output: Annotated[
        Literal["table", "wide", "json", "csv", "name"], Parameter(name=["--output", "-o"], group=OUTPUT_GROUP)
    ] = "table",
    json: Annotated[bool, Parameter(negative="", show_default=False, group=OUTPUT_GROUP)] = False,
    csv_: Annotated[bool, Parameter(name="--csv", negative="", show_default=False, group=OUTPUT_GROUP)] = False,
    connection: Connection | None = None,
) -> ExitCode:
    """The numbers of a job: one line per series, or every point with -o csv or -o json.

    Parameters
    ----------
    job
        Its id, a unique beginning or end of that, its name, or last.
    names
        Only these series, separated by commas; may be given several times.
    from_step
        Only points from this step on.
    to_step
        Only points up to this step.
    max_points
        At most so many points per series; more are gathered into buckets that keep their extremes.
    attempts
        current hides what a later attempt did again; all shows it.
    output
        table, wide: one line per series; csv, json: every point; name: the names of the series.
    json
        Short for -o json.
    csv_
        Short for -o csv.
    """
    from client.cli import output as out

    form = "json" if json else "csv" if csv_ else output
    wanted = [name.strip() for words in names or () for name in words.split(",") if name.strip()]
    with (connection or Connection()).client() as client:
        found = client.metrics(
            job, names=wanted, from_step=from_step, to_step=to_step, max_points=max_points, attempts=attempts
        )
    if form == "json":
        out.print_json(found)
    elif form == "csv":
        _write_csv(found)
    elif form == "name":
        for name in sorted({series.name for series in found.series}):
            print(name)
    elif found.series:
        _print_table(found, wide=form == "wide")
    missing = [name for name in wanted if name not in {series.name for series in found.series}]
    if missing:
        say(f"no points of {', '.join(missing)}; lockstep metrics {job} -o name lists what there is")
    elif not found.series:
        say("no points yet")
    return ExitCode.OK


def _write_csv(found: MetricsView) -> None:
    writer = csv.writer(sys.stdout)
    writer.writerow(["name", "attempt", "step", "time", "value"])
    for series in found.series:
        for step, time, value in zip(series.step, series.time, series.value, strict=True):
            writer.writerow([series.name, series.attempt, step, time, value])


def _print_table(found: MetricsView, *, wide: bool) -> None:
    from client.cli import output as out
    from domain.metrics import from_json

    several = len({series.attempt for series in found.series}) > 1
    rows = []
    for series in found.series:
        if not series.value:
            continue
        shown = _bytes if series.unit == "bytes" else out.number
        lows = [value for value in map(from_json, series.min) if not isnan(value)]
        highs = [value for value in map(from_json, series.max) if not isnan(value)]
        row = [
            series.name,
            shown(series.value[0]),
            shown(series.value[-1]),
            shown(min(lows)) if lows else "NaN",
            shown(max(highs)) if highs else "NaN",
            series.unit,
            str(series.count),
            str(series.step[-1]),
        ]
        rows.append(row + ([str(series.attempt)] if several or wide else []))
    columns = ["SERIES", "FIRST", "LAST", "MIN", "MAX", "UNIT", "POINTS", "STEP"]
    columns += ["ATTEMPT"] if several or wide else []
    out.print_table(columns, rows, right=("FIRST", "LAST", "MIN", "MAX", "POINTS", "STEP", "ATTEMPT"))


def _bytes(value: float | str) -> str:
    from client.cli import output as out

    return value if isinstance(value, str) else out.size(round(value))
