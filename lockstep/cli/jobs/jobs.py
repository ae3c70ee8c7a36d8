"""``ps`` and ``wait``.

Not here: one job in full (``cli.jobs.show``), stops (``cli.jobs.stopping``), and deleting
(``cli.jobs.rm``).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from lockstep.cli.common import Connection, Flag, JobName, Output, States, say
from lockstep.cli.text import output as out
from lockstep.client.errors import OF_STATE, ExitCode, UsageError
from lockstep.domain.life.lifecycle import TERMINAL, JobState

if TYPE_CHECKING:
    from lockstep.client.api import Client
    from lockstep.domain.list_views import JobPage
    from lockstep.domain.views import JobView

LIVE = tuple(state for state in JobState if state not in TERMINAL)
WITH_REASON = (JobState.QUEUED, JobState.PAUSED, JobState.FAILED, JobState.CANCELLED)
"""States whose reason ``ps`` shows. The reason of a running job is that of an earlier attempt."""


def ps(
    *,
    all_: Annotated[Flag, Parameter(name=["--all", "-a"])] = False,
    state: States = None,
    filter_: Annotated[str | None, Parameter(name=["--filter", "-f"])] = None,
    sort: str | None = None,
    search: str | None = None,
    name: str | None = None,
    project: str | None = None,
    owner: str | None = None,
    node: str | None = None,
    label: str | None = None,
    limit: Annotated[int, Parameter(name=["--limit", "-n"])] = 50,
    output: Output = Output(),
    connection: Connection = Connection(),
) -> ExitCode:
    """List jobs, newest first: those that wait or run, unless asked otherwise.

    Where several people use the service, a list without a filter has your own jobs.

    Parameters
    ----------
    all_
        Also those that have ended.
    state
        Only jobs in this state; may be given several times.
    filter_
        Only jobs for which all tokens hold, such as `owner:ada gpus>4 lr<1e-3 val/loss<2`; see
        docs/lists.md.
    sort
        Column, such as `name` or `val/loss:min`; a `-` before it lists the largest first
        (`--sort=-gpus`).
    search
        Only jobs with this text in their name, or at the beginning or end of their id.
    name
        Only jobs of this name.
    project
        Only jobs of this project; `*` stands for any text.
    owner
        Only jobs of this user; `*` stands for any text, and so lists the jobs of all people.
    node
        Only jobs that were placed on this node.
    label
        Only jobs with this label, as KEY=VALUE.
    limit
        At most so many.
    """
    form = output.format
    if limit < 1:
        raise UsageError(f"--limit {limit}: expected 1 or more")
    states = tuple(state or (() if all_ else LIVE))
    wanted = _pair(label) if label is not None else None
    given = (filter_, search, name, project, owner, node, label)
    is_filtered = any(each is not None for each in given)
    with connection.client() as client:
        mine = None if is_filtered else _name_in_a_team(client)
        listing = partial(
            client.jobs,
            states=states,
            filter=filter_,
            sort=sort,
            search=search,
            name=name,
            project=project,
            owner=owner or mine,
            node=node,
            label=wanted,
        )
        found, complete = _newest(listing, limit)
    _print(found, form)
    if form in {"table", "wide"}:
        if found and not complete:
            first = "newest" if sort is None else "first"
            say(f"only the {first} {limit} are shown: -n shows more")
        if not found:
            say(_none_of(mine) if states == LIVE else "no such job")
    if mine is not None:
        # Also to a script: a short list must not pass for a whole one.
        say(f"only jobs of {mine}: --owner '*' lists those of all people")
    return ExitCode.OK


def _none_of(mine: str | None) -> str:
    whose = "no job" if mine is None else f"no job of {mine}"
    return f"{whose} is queued or running; lockstep ps -a also lists ended jobs"


def _print(found: list[JobView], form: str) -> None:
    if form == "json":
        out.print_json(found)
    elif form == "name":
        for job in found:
            print(job.id)
    elif found:
        _print_table(found, wide=form == "wide")


def _name_in_a_team(client: Client) -> str | None:
    """Return the own name; None for a person who is alone, and for a viewer, who has no jobs."""
    from lockstep.domain.rights import ProjectRole, ServiceRole

    caller = client.whoami()
    submits = caller.role is ServiceRole.ADMIN or any(
        role is not ProjectRole.VIEWER for role in caller.projects.values()
    )
    return caller.name if submits and not caller.is_alone else None


def _newest(listing: Callable[..., JobPage], limit: int) -> tuple[list[JobView], bool]:
    """Return at most ``limit`` jobs of a listing, and True if it has no others."""
    found: list[JobView] = []
    cursor: str | None = None
    while len(found) < limit:
        page = listing(cursor=cursor, limit=min(500, limit - len(found)))
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    return found, cursor is None


def _print_table(jobs: list[JobView], *, wide: bool) -> None:
    now = datetime.now(UTC)
    columns = ["ID", "NAME", "STATE", "PROGRESS", "LOSS", "RANKS", "NODES", "AGE", "TOOK", "WHY"]
    columns += ["PRIORITY", "ATTEMPT", "BATCH", "PROJECT", "OWNER"] if wide else []
    rows = [_row(job, now, wide=wide) for job in jobs]
    out.print_table(columns, rows, right=("PROGRESS", "LOSS", "RANKS", "PRIORITY", "ATTEMPT"))


def _row(job: JobView, now: datetime, *, wide: bool) -> list[str]:
    progress, attempt = job.progress, job.attempt
    loss = progress.latest.get("train/loss") if progress is not None else None
    holds = attempt is not None and (
        job.finished_at is not None or job.state is not JobState.QUEUED
    )
    row: list[str] = [
        job.id if wide else out.short_id(job.id),
        job.name,
        out.styled(out.state_of(job)),
        _steps(job),
        out.loss(loss) if loss is not None else "-",
        _ranks(job),
        ",".join(attempt.nodes) if attempt is not None and holds else "-",
        out.age(job.created_at, now),
        out.duration(out.took(job, now)),
        job.reason if job.reason and job.state in WITH_REASON else "",
    ]
    if wide:
        row += [
            str(job.priority),
            str(attempt.number) if attempt is not None else "-",
            job.plan_sentence or "-",
            job.project,
            job.owner,
        ]
    return row


def _steps(job: JobView) -> str:
    progress = job.progress
    if progress is None or (not progress.step and job.started_at is None):
        return "-"
    return f"{progress.step}/{progress.steps}" if progress.steps else str(progress.step)


def _ranks(job: JobView) -> str:
    """Return the ranks of the newest attempt, else of the plan."""
    ranks = job.attempt or job.plan
    return str(ranks.world_size) if ranks is not None else "-"


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--label {text}: expected KEY=VALUE")
    return key, value


def wait(
    job: JobName,
    /,
    *,
    timeout: Annotated[float | None, Parameter(name=["--timeout", "-t"])] = None,
    output: Output = Output(),
    connection: Connection = Connection(),
) -> ExitCode:
    """Wait until a job has ended.

    Exit code 0: it succeeded; 1: failed; 6: cancelled; 124: not in time.

    Parameters
    ----------
    timeout
        Seconds to wait at most.
    """
    form = output.format
    with connection.client() as client:
        ended = client.wait(job, timeout)
    if form == "json":
        out.print_json(ended)
    elif form == "name":
        print(ended.id)
    else:
        print(ended.state.value)
    if ended.outcome is not None and ended.state is not JobState.SUCCEEDED:
        say(ended.outcome.message)
    return OF_STATE[ended.state]
