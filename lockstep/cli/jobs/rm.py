"""``rm``: delete named jobs, or all that ended long ago.

Not here: the data that is deleted with a job (``storage.jobs.removal``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from lockstep.cli.common import Connection, Output, States, Yes, confirmed, require_terminal, say
from lockstep.cli.text import output as out
from lockstep.client.errors import ExitCode, RefusedError, UsageError
from lockstep.domain import limits
from lockstep.domain.life.lifecycle import TERMINAL, JobState

if TYPE_CHECKING:
    from lockstep.client.api import Client
    from lockstep.domain.views import JobView

UNITS: Final = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def rm(
    *jobs: str,
    older_than: str | None = None,
    state: States = None,
    project: str | None = None,
    yes: Yes = False,
    output: Output = Output(),
    connection: Connection = Connection(),
) -> ExitCode:
    """Delete jobs that have ended, with their points, lines, files and checkpoints.

    It cannot be taken back.

    Parameters
    ----------
    jobs
        Each by its id, a unique beginning or end of that, its name, or last.
    older_than
        Instead of jobs: all that ended so long ago, as 12h, 30d or 8w. One that cannot be deleted
        yet is named and stays.
    state
        With --older-than: only jobs that ended so; may be given several times.
    project
        With --older-than: only jobs of this project.
    yes
        Do not ask.
    """
    _check_choice(jobs, older_than, state or [], project)
    if not yes:
        require_terminal("rm")
    form = output.format
    with connection.client() as client:
        if older_than is None:
            deleted, kept = list(_named(client, jobs, form, yes=yes)), 0
        else:
            found = _ended_before(
                client, datetime.now(UTC) - _duration(older_than), state or [*TERMINAL], project
            )
            deleted, kept = _sweep(client, found, older_than, form, yes=yes)
    if form == "json":
        out.print_json(deleted)
    return ExitCode.FAILED if kept else ExitCode.OK


def _check_choice(
    jobs: tuple[str, ...], older_than: str | None, states: list[JobState], project: str | None
) -> None:
    """Refuse a command that does not choose ended jobs in one way: by name or by age."""
    if (older_than is None) == (not jobs):
        raise UsageError(
            "rm: no job is given; name jobs, or pass --older-than 30d",
            next_step="lockstep ps -a lists them",
        )
    if jobs and (states or project is not None):
        raise UsageError(
            "rm: --state and --project filter --older-than and cannot be combined with job names"
        )
    if unended := [each.value for each in states if each not in TERMINAL]:
        raise UsageError(f"rm: a job that is {unended[0]} has not ended")


def _named(client: Client, jobs: tuple[str, ...], form: str, *, yes: bool) -> Iterator[JobView]:
    for found in [client.job(reference) for reference in jobs]:
        if not yes and not confirmed(
            f"delete {found.name} ({found.id}), {out.state_of(found)}?", otherwise=False
        ):
            say(f"{found.name} stays")
            continue
        client.delete(found.id)
        _print(found, form)
        yield found


def _sweep(
    client: Client, found: list[JobView], age: str, form: str, *, yes: bool
) -> tuple[list[JobView], int]:
    """Delete jobs. Return the deleted ones and the number of failures."""
    if not found:
        say(f"no job ended more than {age} ago")
        return [], 0
    if not yes and not confirmed(
        f"delete {len(found)} jobs that ended more than {age} ago?", otherwise=False
    ):
        say("nothing was deleted")
        return [], 0
    deleted = []
    for job in found:
        try:
            client.delete(job.id)
        except RefusedError as error:
            say(f"{job.name} stays: {error.message}")
            continue
        _print(job, form)
        deleted.append(job)
    return deleted, len(found) - len(deleted)


def _ended_before(
    client: Client, moment: datetime, states: list[JobState], project: str | None
) -> list[JobView]:
    found: list[JobView] = []
    cursor: str | None = None
    while True:
        page = client.jobs(
            states=states, project=project, cursor=cursor, limit=limits.PAGE_SIZE_MAX
        )
        found += [
            job for job in page.items if job.finished_at is not None and job.finished_at < moment
        ]
        cursor = page.next_cursor
        if cursor is None:
            return found


def _duration(text: str) -> timedelta:
    match = re.fullmatch(r"([0-9]{1,5})([hdw])", text)
    if match is None:
        raise UsageError(
            f"rm: --older-than {text}: expected a whole number of hours, days or weeks: 12h, 30d, "
            f"8w"
        )
    return int(match[1]) * UNITS[match[2]]


def _print(job: JobView, form: str) -> None:
    if form in ("table", "wide"):
        print(f"{job.id}  {job.name}  deleted")
    elif form == "name":
        print(job.id)
