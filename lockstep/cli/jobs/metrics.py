"""``metrics``: a job's metrics as charts, a table, JSON or CSV.

Not here: the meaning of the metrics (``domain.training.metrics``), charts (``cli.text.chart``), and
the output of single points (``cli.text.points``).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from math import isfinite, isnan
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import Parameter

from lockstep.cli.common import (
    OUTPUT_GROUP,
    Connection,
    Flag,
    Follow,
    JobName,
    Names,
    names_in,
    say,
)
from lockstep.cli.text import output as out
from lockstep.client.errors import ExitCode, UsageError
from lockstep.domain import limits
from lockstep.domain.training.series import of_the_machine

if TYPE_CHECKING:
    from lockstep.cli.text.output import Word
    from lockstep.domain.series_views import MetricsView, SeriesView

CHARTS_MAX: Final = 8
"""Drawn at most: more would scroll the first ones away."""
CHART_ROWS: Final = {1: 12, 2: 8}
"""Of each chart by how many there are; else as few as still show a shape."""
CHART_ROWS_MIN: Final = 5
CHART_COLUMNS_MAX: Final = 160
"""A wider chart shows no more of a curve, and its labels drift away from it."""


def metrics(
    job: JobName,
    /,
    *,
    follow: Follow = False,
    names: Names = None,
    from_step: int | None = None,
    to_step: int | None = None,
    max_points: int | None = None,
    attempts: Literal["current", "all"] | None = None,
    output: Annotated[
        Literal["chart", "table", "wide", "json", "csv", "name"] | None,
        Parameter(name=["--output", "-o"], group=OUTPUT_GROUP, show_default=False),
    ] = None,
    json: Annotated[Flag, Parameter(group=OUTPUT_GROUP)] = False,
    csv_: Annotated[Flag, Parameter(name="--csv", group=OUTPUT_GROUP)] = False,
    connection: Connection = Connection(),
) -> ExitCode:
    """Print a job's metrics: charts and one line per series; every point with -o csv.

    On a terminal the series with a direction are drawn, or those of --names; a pipe gets the table
    only. BEST is the lowest or the highest finite value, by the direction of the series.

    Parameters
    ----------
    follow
        Write points as CSV, or with -o json one JSON object per point, until the job has ended.
        Steps that a later attempt repeats are written again.
    names
        Only these series, separated by commas; may be given several times.
    from_step
        Only points from this step on.
    to_step
        Only points up to this step.
    max_points
        At most this many points per series; more are reduced to buckets that keep their extremes.
        Without it 1,000, with -o json 10,000, and with -o csv there are no buckets. With it and -o
        csv, the attempt of each line is the newest attempt of the curve.
    attempts
        current hides steps that a later attempt repeated; all shows them.
    output
        chart: draw the series; table, wide: one line per series; csv: every point; json: the API's
        answer; name: the names of the series. Without it: charts and the table on a terminal, else
        the table.
    json
        Short for -o json.
    csv_
        Short for -o csv.
    """
    from lockstep.cli.text import points

    form = _form(output, json=json, csv=csv_)
    wanted = names_in(names)
    if follow:
        _check_followed(output, from_step, to_step, max_points, attempts)
    with connection.client() as client:
        if follow:
            points.follow(
                client, job, wanted, points.as_json if form == "json" else points.as_csv()
            )
            return ExitCode.OK
        if form == "csv" and max_points is None:
            points.write(
                client,
                job,
                wanted,
                points.as_csv(),
                from_step=from_step or 0,
                to_step=to_step,
                attempts=attempts,
            )
            return ExitCode.OK
        if form == "json" and max_points is None:
            max_points = limits.SERIES_POINTS_MAX
        found = client.metrics(
            job,
            names=wanted,
            from_step=from_step,
            to_step=to_step,
            max_points=max_points,
            attempts=attempts,
        )
    _show(found, form, wanted)
    _say_missing(found, job, wanted)
    return ExitCode.OK


def _form(output: str | None, *, json: bool, csv: bool) -> str:
    if json:
        return "json"
    if csv:
        return "csv"
    return output or ("charts and table" if sys.stdout.isatty() else "table")


def _check_followed(
    output: str | None,
    from_step: int | None,
    to_step: int | None,
    max_points: int | None,
    attempts: str | None,
) -> None:
    others = {
        "--from-step": from_step,
        "--to-step": to_step,
        "--max-points": max_points,
        "--attempts": attempts,
    }
    if given := [option for option, value in others.items() if value is not None]:
        raise UsageError(
            f"--follow writes each point as it arrives and cannot be combined with "
            f"{' or '.join(given)}"
        )
    if output not in (None, "csv", "json"):
        raise UsageError(f"--follow writes CSV or JSON, not -o {output}")


def _show(found: MetricsView, form: str, wanted: list[str]) -> None:
    from lockstep.cli.text import points

    if form == "json":
        out.print_json(found)
    elif form == "csv":
        points.write_view(found, points.as_csv())
    elif form == "name":
        for name in sorted({series.name for series in found.series}):
            print(name)
    elif found.series:
        if form in ("chart", "charts and table"):
            _print_charts(found, wanted)
        if form != "chart":
            _print_table(found, wide=form == "wide")


def _say_missing(found: MetricsView, job: str, wanted: list[str]) -> None:
    if missing := [name for name in wanted if name not in {series.name for series in found.series}]:
        say(f"no points of {', '.join(missing)}; lockstep metrics {job} -o name lists the series")
    elif not found.series:
        say("no points yet")


def _print_charts(found: MetricsView, wanted: list[str]) -> None:
    """A chart of each requested series, of those with a direction, or of all."""
    there = [series for series in found.series if series.value]
    directed = [
        series.name
        for series in there
        if series.direction != "none" and not of_the_machine(series.name)
    ]
    names = [name for name in wanted if name in {series.name for series in there}]
    names = list(dict.fromkeys(names or directed or [series.name for series in there]))
    for name in names[:CHARTS_MAX]:
        for line in _chart(
            name, [each for each in found.series if each.name == name and each.value], len(names)
        ):
            out.print_line(line)
        print()
    if len(names) > CHARTS_MAX:
        say(f"{len(names) - CHARTS_MAX} more series are not drawn; choose series with --names")


def _chart(name: str, parts: list[SeriesView], charts: int) -> Iterator[list[Word]]:
    """One series with a title, each attempt a curve of its own."""
    from lockstep.cli.text.chart import COLOURS, ChartLine, draw

    curves = [ChartLine(each.step, each.value, each.min, each.max) for each in parts]
    unit = parts[-1].unit
    shown = _form_of(parts[-1])
    title = [
        out.Word(name, "bold"),
        out.Word(f"  {shown(parts[-1].value[-1])} at step {parts[-1].step[-1]}", ""),
    ]
    title += [out.Word(f", {unit}", "")] if unit not in ("", "bytes") else []
    if len(parts) > 1:
        title += [
            out.Word(f"  attempt {each.attempt}", COLOURS[number % len(COLOURS)])
            for number, each in enumerate(parts)
        ]
    if odd := [
        step
        for curve in curves
        for step, value in zip(curve.step, curve.value, strict=True)
        if not isfinite(value)
    ]:
        title.append(out.Word(f"  not a number first at step {min(odd)}", "bold red"))
    yield title
    columns = min(shutil.get_terminal_size().columns, CHART_COLUMNS_MAX)
    yield from draw(
        curves, columns, CHART_ROWS.get(charts, CHART_ROWS_MIN), shown, braille=out.can_write("⣿")
    )


def _form_of(series: SeriesView) -> Callable[[float], str]:
    return out.size if series.kind == "bytes" else out.number


def _best(series: SeriesView, shown: Callable[[float], str]) -> str:
    """Return the best finite value by the direction, or a dash."""
    values = {"lower": series.min, "higher": series.max, "none": []}[series.direction]
    finite = [value for value in values if isfinite(value)]
    if not finite:
        return "-"
    return shown(min(finite) if series.direction == "lower" else max(finite))


def _print_table(found: MetricsView, *, wide: bool) -> None:
    several = len({series.attempt for series in found.series}) > 1
    rows = []
    for series in found.series:
        if not series.value:
            continue
        shown = _form_of(series)
        lows = [value for value in series.min if not isnan(value)]
        highs = [value for value in series.max if not isnan(value)]
        row = [
            series.name,
            shown(series.value[0]),
            shown(series.value[-1]),
            shown(min(lows)) if lows else "NaN",
            shown(max(highs)) if highs else "NaN",
            _best(series, shown),
            series.unit,
            str(series.count),
            str(series.step[-1]),
        ]
        rows.append(row + ([str(series.attempt)] if several or wide else []))
    columns = ["SERIES", "FIRST", "LAST", "MIN", "MAX", "BEST", "UNIT", "POINTS", "STEP"]
    columns += ["ATTEMPT"] if several or wide else []
    out.print_table(
        columns, rows, right=("FIRST", "LAST", "MIN", "MAX", "BEST", "POINTS", "STEP", "ATTEMPT")
    )
