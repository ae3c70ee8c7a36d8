"""``usage``: device-hours by project, person or day.

Not here: the devices of one job over its steps (``cli.jobs.metrics``).
"""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from lockstep.cli.common import OUTPUT_GROUP, Connection, Flag, Output, moment
from lockstep.cli.text import output as out
from lockstep.client.errors import ExitCode

if TYPE_CHECKING:
    from lockstep.domain.people_views import UsageView

Wanted = Annotated[str | None, Parameter(show_default=False)]


def usage(
    *,
    by: Literal["project", "person", "day"] = "project",
    since: Annotated[str | None, Parameter(name="--from", show_default=False)] = None,
    until: Annotated[str | None, Parameter(name="--to", show_default=False)] = None,
    project: Wanted = None,
    csv_: Annotated[Flag, Parameter(name="--csv", group=OUTPUT_GROUP)] = False,
    output: Output = Output(),
    connection: Connection = Connection(),
) -> ExitCode:
    """Show the device-hours of projects, people or days.

    HOURS is the time for which jobs held devices, jobs that run included. REPEATED are steps that
    an earlier attempt had computed and lost, IDLE are starts, and the time until devices are free
    again. PRODUCTIVE is the rest.

    Parameters
    ----------
    by
        project, person or day. Days are those of UTC.
    since
        Start, such as 2026-03-01. Without it, 30 days before the end.
    until
        End. Without it, now.
    project
        Only this project.
    csv_
        Comma-separated values with a heading.
    """
    with connection.client() as client:
        found = client.usage(
            by=by, since=moment("--from", since), until=moment("--to", until), project=project
        )
    if csv_:
        _print_csv(found)
    elif output.format == "json":
        out.print_json(found)
    elif output.format == "name":
        for row in found.rows:
            print(row.name)
    else:
        _print_table(found)
    return ExitCode.OK


def _print_csv(found: UsageView) -> None:
    """Print the rows as RFC 4180 describes."""
    writer = csv.writer(sys.stdout)
    parts = ("allocated", "productive", "repeated", "idle")
    writer.writerow([found.by, *[f"{part}_hours" for part in parts], "jobs"])
    for row in found.rows:
        hours = [f"{getattr(row, part):.4f}" for part in parts]
        writer.writerow([row.name, *hours, row.jobs])


def _print_table(found: UsageView) -> None:
    numbers = ["HOURS", "PRODUCTIVE", "REPEATED", "IDLE", "JOBS"]
    rows = []
    for row in found.rows:
        hours = [row.allocated, row.productive, row.repeated, row.idle]
        rows.append([row.name, *[f"{each:,.2f}" for each in hours], f"{row.jobs:,}"])
    out.print_table([found.by.upper(), *numbers], rows, right=numbers)
