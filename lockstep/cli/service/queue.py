"""``queue``, ``why`` and ``shares``: who waits, for what, and whose turn it is.

Not here: one job in full (``lockstep show``), device-hours (``lockstep usage``).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from lockstep.cli.common import Connection, Output, say
from lockstep.cli.text import output as out
from lockstep.client.errors import ExitCode

if TYPE_CHECKING:
    from lockstep.domain.queue_views import SharesView, ShareView, WhyView
    from lockstep.domain.views import JobView


def queue(
    *,
    project: Annotated[str | None, Parameter(show_default=False)] = None,
    output: Output = Output(),
    connection: Connection = Connection(),
) -> ExitCode:
    """List the jobs that wait, in the order in which they go.

    Parameters
    ----------
    project
        Only jobs of this project; their places are those in the whole queue.
    """
    with connection.client() as client:
        found = list(client.queue(project=project))
    if output.format == "json":
        out.print_json(found)
    elif output.format == "name":
        for job in found:
            print(job.id)
    elif found:
        now = datetime.now(UTC)
        columns = ["PLACE", "ID", "NAME", "PROJECT", "OWNER", "DEVICES", "WAITS", "START", "WHY"]
        rows = [_row(job, now) for job in found]
        out.print_table(columns, rows, right=("PLACE", "DEVICES", "WAITS"))
    else:
        say("no job waits")
    return ExitCode.OK


def _row(job: JobView, now: datetime) -> list[str]:
    place = job.queue
    start = None if place is None else place.estimated_start
    return [
        "-" if place is None else str(place.position),
        out.short_id(job.id),
        job.name,
        job.project,
        job.owner or "-",
        str((job.spec.get("resources") or {}).get("gpus", 1)),
        out.age(job.created_at, now),
        "-" if start is None else f"{start.astimezone():%a %H:%M}",
        out.harmless((place.reason if place else job.reason) or ""),
    ]


def why(
    job: str, /, *, output: Output = Output(), connection: Connection = Connection()
) -> ExitCode:
    """Show why a job waits, when it starts, and which jobs are ahead of it.

    Parameters
    ----------
    job
        Id, the beginning or end of one, name, or last.
    """
    with connection.client() as client:
        found = client.why(job)
    if output.format == "json":
        out.print_json(found)
    elif found.start is None:
        say(f"job {found.id} does not wait: it is {found.state}")
    else:
        out.print_facts(list(_facts(found)))
    return ExitCode.OK


def _facts(found: WhyView) -> Iterator[tuple[str, str]]:
    yield "job", f"{found.name} ({found.id})"
    if found.queue is not None:
        yield "place", str(found.queue.position)
        yield "waits", out.harmless(found.queue.reason)
        if found.queue.code is not None:
            yield "reason", found.queue.code
    yield "start", out.harmless(found.start or "")
    if found.limit is not None:
        yield "limit", out.time_limit(found.limit)
    for each in found.ahead:
        of = f"{each.project}, by {each.owner}"
        devices = f"{each.devices} device{'s' if each.devices != 1 else ''}"
        yield "ahead", f"{each.position}. {each.name} ({each.id}), {devices}, {of}"
    others = found.ahead_count - len(found.ahead)
    if others:
        yield "ahead", f"{others} {'more ' if found.ahead else ''}job{'s' if others != 1 else ''}"


def shares(*, output: Output = Output(), connection: Connection = Connection()) -> ExitCode:
    """Show the shares of projects: devices that their weights give them, and their use.

    IN USE is the devices now, AVERAGE those over the last days, older use counting less. The
    project with the least of both for its weight goes first.
    """
    with connection.client() as client:
        found = client.shares()
    if output.format == "json":
        out.print_json(found)
    elif output.format == "name":
        for item in found.items:
            print(item.project)
    else:
        _print_shares(found, wide=output.format == "wide")
    return ExitCode.OK


def _print_shares(found: SharesView, *, wide: bool) -> None:
    numbers = ["WEIGHT", "ENTITLED", "IN USE", "AVERAGE", "QUEUED"]
    rows = []
    for share in found.items:
        rows.append([share.project, *_numbers(share), _limits(share)])
        people = share.people if wide else []
        rows += [
            [
                f"  {each.user}",
                "",
                "",
                str(each.in_use),
                f"{each.average:.1f}",
                str(each.queued),
                "",
            ]
            for each in people
        ]
    out.print_table(["PROJECT", *numbers, "LIMITS"], rows, right=numbers)
    say(f"{found.devices} devices are ready")


def _numbers(share: ShareView) -> list[str]:
    entitled = "-" if share.entitled is None else f"{share.entitled:.1f}"
    average = f"{share.average:.1f}"
    return [f"{share.weight:g}", entitled, str(share.in_use), average, str(share.queued)]


def _limits(share: ShareView) -> str:
    found = [] if share.gpus_max is None else [f"at most {share.gpus_max} devices"]
    if share.budget_gpu_hours is not None:
        used = share.used_gpu_hours or 0.0
        found.append(f"{used:,.0f} of {share.budget_gpu_hours:,.0f} device-hours used")
    return ", ".join(found) or "-"
