"""``cancel``, ``pause``, ``resume``, ``requeue`` and ``priority``.

Not here: the end of a job (``lockstep.cli.jobs.jobs.wait``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from lockstep.cli.common import Connection, Flag, Output, Settings, say
from lockstep.cli.text import output as out
from lockstep.client.errors import ExitCode, RefusedError, UsageError
from lockstep.domain.life.lifecycle import TERMINAL

if TYPE_CHECKING:
    from lockstep.client.api import Client
    from lockstep.domain.views import JobView

CHANGEABLE: Final = ("/train/steps", "/timeout_seconds", "/stop_grace", "/retry", "/resources")
"""Beginnings of the pointers to what may differ in a job that continues another one."""


def cancel(
    *jobs: str,
    now: Flag = False,
    wait: Flag = False,
    output: Output = Output(),
    connection: Connection = Connection(),
) -> ExitCode:
    """Ask for the end of jobs: one that waits is cancelled at once, one that runs is stopped first.

    A train job has time for its last checkpoint. The answer has the limit.

    Parameters
    ----------
    jobs
        Each by its id, a unique beginning or end of that, its name, or last.
    now
        Kill their processes at once, without a checkpoint.
    wait
        Return when nothing of them runs any more.
    """

    def request(client: Client, reference: str) -> JobView:
        found = client.cancel(reference, now=now)
        return client.wait(found.id) if wait else found

    return _for_each("cancel", jobs, request, output, connection)


def pause(
    *jobs: str,
    now: Flag = False,
    output: Output = Output(),
    connection: Connection = Connection(),
) -> ExitCode:
    """Pause jobs until they are resumed: one that runs saves and gives its devices back.

    A paused job keeps its age and its checkpoints, and uses no retry.

    Parameters
    ----------
    jobs
        Each by its id, a unique beginning or end of that, its name, or last.
    now
        Kill their processes at once, without a checkpoint.
    """
    return _for_each("pause", jobs, lambda one, ref: one.pause(ref, now=now), output, connection)


def resume(
    *jobs: str,
    settings: Settings = None,
    output: Output = Output(),
    connection: Connection = Connection(),
) -> ExitCode:
    """Queue paused jobs again, with their age. An ended job is continued by a new one.

    The new job begins with the newest checkpoint and the files of the ended one, which stays as it
    is.

    Parameters
    ----------
    jobs
        Each by its id, a unique beginning or end of that, its name, or last.
    settings
        Change one value of the new job: --set train.steps=2000. Steps, time limit, grace, retries
        and resources may change; lockstep clone changes the rest.
    """
    from lockstep.client.files.specfile import pointer_to, read_setting

    changes = {pointer_to(path): value for path, value in map(read_setting, settings or [])}
    for pointer in changes:
        if not pointer.startswith(CHANGEABLE):
            raise UsageError(
                f"resume: {pointer[1:].replace('/', '.')} cannot change in a job that continues",
                next_step="start a job of its own: lockstep clone JOB --set KEY=VALUE",
            )

    def request(client: Client, reference: str) -> JobView:
        job = client.job(reference)
        if job.state in TERMINAL:
            return client.clone(job.id, {**changes, "/continues": job.id})
        if changes:
            raise UsageError(
                f"resume: --set is for a job that has ended; {job.name} is {job.state.value}",
                next_step="resume it without --set",
            )
        return client.resume(job.id)

    return _for_each("resume", jobs, request, output, connection)


def requeue(
    *jobs: str,
    avoid: Annotated[list[str] | None, Parameter(negative=())] = None,
    now: Flag = False,
    output: Output = Output(),
    connection: Connection = Connection(),
) -> ExitCode:
    """Stop running jobs and queue them again. That uses no retry.

    Parameters
    ----------
    jobs
        Each by its id, a unique beginning or end of that, its name, or last.
    avoid
        Name of a node that they try last from now on; may be repeated.
    now
        Kill their processes at once, without a checkpoint.
    """

    def request(client: Client, reference: str) -> JobView:
        return client.requeue(reference, avoid=avoid or (), now=now)

    return _for_each("requeue", jobs, request, output, connection)


def priority(
    value: int, *jobs: str, output: Output = Output(), connection: Connection = Connection()
) -> ExitCode:
    """Change the priority of jobs that have not ended: their order in the queue of their project.

    Parameters
    ----------
    value
        From 0 to 100, where 100 goes first.
    jobs
        Each by its id, a unique beginning or end of that, its name, or last.
    """

    def request(client: Client, reference: str) -> JobView:
        return client.mark(reference, priority=value)

    return _for_each("priority", jobs, request, output, connection)


def _for_each(
    name: str,
    jobs: tuple[str, ...],
    request: Callable[[Client, str], JobView],
    output: Output,
    connection: Connection,
) -> ExitCode:
    if not jobs:
        raise UsageError(f"{name}: which job?", next_step="lockstep ps lists them")
    form = output.format
    answers = []
    refused: list[RefusedError] = []
    with connection.client() as client:
        for reference in jobs:
            try:
                job = request(client, reference)
            except RefusedError as error:  # The others are not to wait for it.
                refused.append(error)
                continue
            answers.append(job)
            if form in ("table", "wide"):
                limit = f", {job.stop_grace.sentence()}" if job.stop_grace is not None else ""
                print(f"{job.id}  {job.name}  {out.state_of(job)}{limit}")
            elif form == "name":
                print(job.id)
    if form == "json":
        out.print_json(answers)
    for earlier in refused[:-1]:
        say(earlier.message)
    if refused:
        raise refused[-1]
    return ExitCode.OK
